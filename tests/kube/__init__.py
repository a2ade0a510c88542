"""Tests of the edge: its pure state, its lanes against scripted servers. The real server is in tests/real."""
