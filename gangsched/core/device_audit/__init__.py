"""What pods hold by our books, by their annotations and by kubelet's word; differences, and devices that
fail.

Called by core.scheduler for events of pods and nodes. Not here: the ledger itself (core.cache.device_ledger).
"""
