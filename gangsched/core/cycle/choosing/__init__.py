"""Which of the fitting nodes the members get."""
