"""What deduplication costs: measured beside what would be picked instead, on one machine in one run."""
