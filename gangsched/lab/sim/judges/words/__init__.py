"""Judges of what people read: conditions, group status, pages, and what a namespace may know."""
