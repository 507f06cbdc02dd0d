"""Which nodes pods get: filters and scores of a class of pods, and what makes that fast."""
