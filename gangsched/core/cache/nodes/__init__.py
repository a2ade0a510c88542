"""Nodes as rows of arrays, and what plugins count for each row."""
