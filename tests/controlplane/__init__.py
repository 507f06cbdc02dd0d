"""A real Kubernetes control plane on loopback, built from source and thrown away after the tests."""
