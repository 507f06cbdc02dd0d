"""The laboratory: what policies make of workloads over time, with the engine that runs on clusters."""
