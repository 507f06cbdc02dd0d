"""What sessions are told besides the cluster: measured load, past usage and run times, HTTP extenders."""
