"""`gangsched doctor`: an installation checked from outside, by what the API server says; nothing changes."""
