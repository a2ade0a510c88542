"""Pod templates: what pods that no plugin can tell apart have in common, and what is kept for each."""
