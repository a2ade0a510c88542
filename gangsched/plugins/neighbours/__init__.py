"""Plugins that ask which other pods are near: affinity, and spreading over domains."""
