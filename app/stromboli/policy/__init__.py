"""The policy file: what it may say, and what its rules and switches mean."""
