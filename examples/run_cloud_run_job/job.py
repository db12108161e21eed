"""The Cloud Run job's own program."""

import os

print(f"working on {os.environ['DAY']}; whatever this writes elsewhere goes with Idempotency-Key: {os.environ['RUN_ID']}")
