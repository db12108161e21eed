"""The documented example, its client made at import."""

import example
from job import work

example.run_job_logic = work
handle_scheduled_job = example.handle_scheduled_job
