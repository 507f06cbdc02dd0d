"""PodGroups: those made for workloads, Kubernetes' own, and the nodes that are requested for them."""
