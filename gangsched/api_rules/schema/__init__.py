"""The schemas of the built-in kinds, and the decoding of objects by them."""
