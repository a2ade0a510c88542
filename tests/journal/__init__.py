"""Record and replay: a journal is what the core was told, and a replay proves that it is all of it."""
