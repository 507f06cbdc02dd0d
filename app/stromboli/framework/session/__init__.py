"""One session: jobs take turns, statements try operations, and what is committed becomes decisions."""
