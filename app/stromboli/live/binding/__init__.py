"""Bindings and evictions: what a pod needs is reserved, and decisions are carried out."""
