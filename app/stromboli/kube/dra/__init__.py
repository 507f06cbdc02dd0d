"""Dynamic resource allocation: which devices of a node a pod's resource claims get, and how many a queue may hold."""
