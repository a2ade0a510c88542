"""Sends ended spans: to a collector, or to a file."""
