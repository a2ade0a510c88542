"""Following kinds: list, watch, resume, relist; JSON into events for the core.

`watch_state` is the pure state machine, `reflector` drives it. Not here: writes (kube.effects).
"""
