"""Victims as Volcano finds them: the first that work, under the rules of `first_fit`."""
