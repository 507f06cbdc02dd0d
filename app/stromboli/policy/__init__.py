"""The policy file: its model, and the meaning of its rules and switches."""
