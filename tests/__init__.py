"""The tests, laid out like the package; `tests/real` needs a real control plane."""
