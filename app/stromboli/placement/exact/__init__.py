"""Places for a gang that finds none in the order of its pods: a search that is exact within a budget of steps."""
