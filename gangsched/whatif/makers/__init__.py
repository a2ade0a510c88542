"""Makes the pods that controllers would make of the objects in a file."""
