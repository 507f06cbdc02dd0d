"""Runs plugins: which take part, checks of their answers, one answer made of several, plugins that fail."""
