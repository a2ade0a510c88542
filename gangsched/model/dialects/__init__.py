"""The dialects in which pods name their groups and groups state their member counts, one file each.

Lives here: only how each is written. `dialect` is their common form; `numbers` has the parsing that several
share. Their table, and how to add one, is in gangsched.model.pod_group, the only module that imports from
here.
"""
