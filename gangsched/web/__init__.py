"""The pages of a running scheduler: health, metrics, configuration. Read only: no page changes anything.

Rooms: measures (what is counted while scheduling), metrics (all of it under its Prometheus names), health and
checks (what probes ask), access (who may read), configz (the configuration as it is), server (HTTP). Built by
app.py when a port is asked for; what the first bind does not wait for is imported after it.
"""
