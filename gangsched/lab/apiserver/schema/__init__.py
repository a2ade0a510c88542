"""The schemas of objects, and the validation and defaults that follow from them."""
