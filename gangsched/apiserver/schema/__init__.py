"""What objects look like: their schemas, and what is checked and completed with them."""
