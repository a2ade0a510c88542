"""How the judges read documents for themselves, and what they keep of what they have read."""
