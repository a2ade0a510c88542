"""What each queue and namespace uses, and the tree of queues with its limits."""
