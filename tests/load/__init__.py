"""Tests of `gangsched load`."""
