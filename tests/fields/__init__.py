"""The fields of the kinds that are read: which are known, and what is done about each."""
