"""KAI-Scheduler's fair share, recorded, against ours."""
