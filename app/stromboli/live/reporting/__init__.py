"""What users see of decisions: statuses, conditions and Events, written when they change."""
