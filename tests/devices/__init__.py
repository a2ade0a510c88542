"""Tests of `gangsched devices`."""
