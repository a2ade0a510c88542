"""How the demo is shown: a table, lines, a picture, and the summary."""
