"""What is stored: revisions and bytes, and what lists and watches show of it."""
