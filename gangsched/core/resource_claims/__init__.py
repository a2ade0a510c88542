"""Dynamic Resource Allocation: which devices there are, who has them, and which ones claims get."""
