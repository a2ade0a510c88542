"""The demo: its story on the core alone, what it shows, and the whole of it end to end."""
