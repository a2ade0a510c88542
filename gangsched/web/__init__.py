"""The pages of a running scheduler: health, metrics, configuration. Read-only, except for Permit decisions.

Rooms: measures (counted while scheduling), metrics (all numbers under their Prometheus names), health and
checks (probes), access (authorization), configz (the configuration in effect), server (HTTP). Built by
process.app when a port is configured; parts not needed for the first bind are imported after it.
"""
