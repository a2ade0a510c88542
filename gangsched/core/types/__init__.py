"""What every room of the core speaks of: arrays, changes, templates, groups and members, placements.

Plain values with no behaviour beyond counting themselves. Not here: anything that reads a cluster or decides.
Imported by all rooms above; imports model/ alone.
"""
