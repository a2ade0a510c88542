"""Text from outside and for people: limits, names, quantities, and what is safe to print."""
