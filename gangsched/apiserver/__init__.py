"""The embedded API server: an in-memory store with Kubernetes' rules, and the HTTP face it is spoken to through."""
