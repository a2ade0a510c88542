"""Devices of pods by our records, by annotations and by kubelet's report; differences, and failing devices.

Called by core.scheduler for events of pods and nodes. Not here: the ledger itself (core.cache.device_ledger).
"""
