"""The command line: the table of commands, and what every command shares."""
