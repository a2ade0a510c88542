"""The values that every room of the core uses: arrays, changes, templates, groups and members, placements.

Plain values with no behaviour beyond their own counts. Not here: anything that reads a cluster or decides.
Imported by all rooms above; imports model/ alone.
"""
