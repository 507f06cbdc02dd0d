"""Placement of pods, gangs and jobs; for actions."""
