"""The values that every part of the core uses: arrays, changes, templates, groups and members, placements.

Plain values with no behaviour beyond their own counts. Not here: anything that reads a cluster or decides.
Imported by all other packages of the core.
"""
