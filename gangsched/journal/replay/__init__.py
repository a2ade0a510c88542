"""Makes a journal's decisions again, compares them, and shows them."""
