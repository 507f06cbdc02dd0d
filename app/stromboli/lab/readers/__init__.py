"""Readers of workloads, a module for each format. Wrong lines are named, with their numbers, and left out."""
