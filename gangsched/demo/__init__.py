"""The demo: an embedded cluster, the scheduler, a story about gangs, and a table that shows what happens.

`story` says what is done and what must come of it, `stage` does it, `scene` and `chronicle` are what was
seen, `screen` and `lines` show it, `picture` draws it. Nothing here pretends: a step is over when the
scheduler's own state says so, and a step that does not happen ends the demo with exit code 1.
"""
