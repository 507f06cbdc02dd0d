"""The framework: sessions, statements, plugins and the points at which plugins take part.

What plugin authors need is exported here.
"""

from stromboli.framework.plugin import Arguments, Filters, Key, Plugin, Verdict, Vote

__all__ = ["Arguments", "Filters", "Key", "Plugin", "Verdict", "Vote"]
