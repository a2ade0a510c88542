"""Tests of floor 0: quantities, requests, devices, pod groups."""
