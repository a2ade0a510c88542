"""The rules of pods: creation, updates, status, binding, eviction."""
