"""Plugins from outside and their hooks at the edge."""
