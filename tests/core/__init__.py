"""Scenarios for the core: one gang's story each, told by the cluster's words and the scheduler's effects."""
