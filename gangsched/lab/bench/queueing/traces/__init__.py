"""Workloads to queue: a model, and recorded jobs in several formats."""
