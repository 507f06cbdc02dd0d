"""The cluster as one session sees it: queues, jobs, nodes, HyperNodes, and what earlier sessions left."""
