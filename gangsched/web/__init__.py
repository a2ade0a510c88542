"""The pages of a running scheduler: health, metrics, configuration. Read-only, except for Permit decisions.

Rooms: metrics (counted while scheduling, and under their Prometheus names), serving (HTTP, health), pages,
board (the dashboard), top, commands (what asks for the pages). Beside them: listening (the port), access
(authorization), turns (pages beside the scheduler's loop), leader (finding a scheduler). Built by process.app
when a port is configured; parts not needed for the first bind are imported after it.
"""
