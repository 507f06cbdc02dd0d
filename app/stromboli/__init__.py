"""A queue scheduler for Kubernetes: gangs, fair shares, and decisions that can be explained and simulated."""
