"""The dialects in which pods name their groups and groups say what they ask for, one file each.

Lives here: how each is written, and nothing else. `dialect` is the shape that all of them have, `numbers`
what several of them read alike. The table of them, and how to add one, is gangsched.model.pod_group; nobody
else imports from here.
"""
