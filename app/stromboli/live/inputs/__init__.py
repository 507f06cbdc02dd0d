"""Inputs of sessions besides the cluster: measured load, past usage and run times, HTTP extenders."""
