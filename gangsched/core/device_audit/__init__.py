"""Devices of pods by our records, annotations and kubelet's report; their differences, and failing devices.

Called by core.scheduler for events of pods and nodes. Not here: the ledger itself (core.cache.device_ledger).
"""
