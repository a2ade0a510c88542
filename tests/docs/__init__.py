"""What the README and docs/ must hold: links, commands, YAML, messages, and what follows from the code."""
