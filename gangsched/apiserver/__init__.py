"""The embedded API server: an in-memory store with Kubernetes' rules, and its HTTP face."""
