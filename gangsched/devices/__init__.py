"""`gangsched devices`: which pod holds which device, read from the API server itself."""
