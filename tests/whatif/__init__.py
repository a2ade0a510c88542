"""`gangsched whatif`."""
