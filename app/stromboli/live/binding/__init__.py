"""Bindings and evictions: a pod's claims and volumes are reserved, and decisions are carried out."""
