"""Floor 3: out-of-tree plugins: loading them, giving them the API server, limiting their time."""
