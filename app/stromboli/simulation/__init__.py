"""Simulation: the engine run on objects from files, with the same core as on a cluster."""
