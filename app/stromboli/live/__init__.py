"""The service on a cluster: watch events go into the state, decisions go out to the API server."""
