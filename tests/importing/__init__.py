"""`gangsched import`: other schedulers' days as journals."""
