"""Lists and watches of the API server, and the state that follows them."""
