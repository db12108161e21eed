"""What is a fork's own, as the template ships it: only in the template itself is it looked into."""

import os
from pathlib import Path

MAIN_PY = Path(__file__).with_name("main.py")
"""The template's, for tests that need one: the repository's may be a fork's."""

SHIPPED = os.environ.get("SHIPPED") == "1"
"""Whether main.py, README.md and the rest of what docs/upgrade.md calls yours are as shipped. The template's own CI says so."""
