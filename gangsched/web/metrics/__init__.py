"""What /metrics shows: counts taken while the scheduler works, and snapshots of its state."""
