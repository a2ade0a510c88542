"""`gangsched devices`: who holds which device, read from the API server itself."""
