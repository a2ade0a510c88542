"""Patches: JSON Patch, merge patch, strategic merge patch, and server-side apply with its managed fields."""
