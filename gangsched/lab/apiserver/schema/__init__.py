"""Schemas of custom objects, and which fields of a body are unknown; those of built-in kinds:
api_rules.schema."""
