"""The scheduler's process: the loop around the core, its lease, its reflectors and its optional parts."""
