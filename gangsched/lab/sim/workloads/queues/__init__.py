"""Teams with queues: guarantees, limits, tenants."""
