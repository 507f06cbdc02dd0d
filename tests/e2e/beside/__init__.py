"""Situations that are played twice on one control plane: for pods of kube-scheduler, and for pods of ours."""
