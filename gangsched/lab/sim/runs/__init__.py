"""Runs of a seed: one scheduler or two, reloads, volumes, plugins; and the storms by name."""
