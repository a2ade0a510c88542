"""A node's measurements of itself: bandwidth of its NICs, load, performance; two annotations of the Node.

Rooms: `nics`, `machine` read counters (all I/O, in a thread), `counters` and `meters` turn them into rates
over sliding windows (pure: take counters and the time), `heartbeat` decides when to write the Node (pure),
`running` is the task that does all this, `probe_settings` the sections `bandwidth` and `load`. Called by app.
"""
