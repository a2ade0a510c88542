"""Tests of the in-tree plugins: scenarios, and array answers compared with plain per-node references."""
