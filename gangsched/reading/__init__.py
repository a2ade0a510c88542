"""YAML that people write, read strictly: its bounds, fields, names, durations. Called by what reads files."""
