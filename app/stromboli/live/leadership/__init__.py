"""Which replica schedules: the Lease, and what keeps all others from writing."""
