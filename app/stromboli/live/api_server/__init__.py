"""Requests to the API server, and what it says of itself, its clients and its definitions."""
