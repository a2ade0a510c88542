"""Renames a journal so that it can be shared, with the same decisions."""
