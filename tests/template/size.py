"""How much of the long tests is run."""

import os

WHOLE = os.environ.get("WHOLE") != "0"
"""`make test` sets WHOLE=0, for less than three minutes; everything else runs them whole."""
