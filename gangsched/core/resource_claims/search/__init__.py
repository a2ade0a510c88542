"""Which devices claims get: for one pod more, for many at once, and which of those that would do."""
