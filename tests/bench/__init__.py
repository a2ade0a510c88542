"""The bench's own arithmetic and checks, and one small run of it on a real control plane."""
