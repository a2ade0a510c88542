"""Shows a trace in a terminal."""
