"""The demo: an embedded cluster, the scheduler, a story about gangs, and a table that shows what happens.

`story` has the actions and their expected results, `stage` carries them out, `scene` and `chronicle` record
what was seen, `shows` shows it, on a screen, in lines and as a picture. Nothing is faked: a step is over when
the scheduler's own state says so, and a step that does not happen ends the demo with exit code 1.
"""
