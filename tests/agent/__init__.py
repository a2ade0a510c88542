"""The node agent: its pure parts in virtual time, its sources, and the whole of it on a real API server."""
