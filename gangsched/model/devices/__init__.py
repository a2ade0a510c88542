"""Devices as annotations and labels state them: lists, allocations, links, constraints, reports."""
