"""The laboratory: the results of policies on workloads over time, with the engine that runs on clusters."""
