"""Devices of pods by our records, annotations and kubelet's report; their differences, and failing devices.

Called by core.turns.event_handlers and core.groups.members.membership with events of nodes and pods, and by
core.scheduler at the end of a turn. Not here: the ledger itself (core.cache.devices.ledger).
"""
