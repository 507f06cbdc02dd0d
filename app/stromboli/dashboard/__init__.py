"""The dashboard's data over HTTP: the last session at a glance, and the history of sessions."""
