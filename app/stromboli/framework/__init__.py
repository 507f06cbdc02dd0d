"""The framework: sessions, statements, plugins and the points at which plugins take part."""
