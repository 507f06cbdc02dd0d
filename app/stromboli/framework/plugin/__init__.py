"""The plugin API: extension points, hints, and what plugins are told and report."""
