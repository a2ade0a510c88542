"""The embedded API server: its rules without sockets, then over HTTP, then with our own scheduler."""
