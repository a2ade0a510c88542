"""What a node measures of itself: bandwidth of its NICs, load, performance; two annotations of the Node.

Rooms: `nics`, `machine` read counters (all I/O, in a thread), `counters` and `meters` make rates of them
over sliding windows (pure: told counters and the time), `heartbeat` says when the Node is written (pure),
`running` is the task that does all this, `probe_settings` the sections `bandwidth` and `load`. Called by app.
"""
