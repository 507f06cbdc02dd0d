"""Dynamic resource allocation: the devices that satisfy pods' resource claims, and the device quotas of queues."""
