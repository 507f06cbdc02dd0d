"""What kube-scheduler answered, case by case, against what we answer about the same objects."""
