"""Pods found by their labels, terms, volumes and recent moves."""
