"""The dialects in which pods name their groups and groups state their numbers, one file each.

Lives here: how each is written, and nothing else. `dialect` is their common form, `numbers` has the parsing
that several of them share. Their table, and how to add one, is in gangsched.model.pod_group; only it imports
from here.
"""
