"""Reporting of decisions to users: statuses, conditions and Events, written when they change."""
