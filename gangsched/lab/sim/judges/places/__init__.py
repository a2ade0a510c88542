"""Judges of where pods go: room, devices, constraints, links and volumes."""
