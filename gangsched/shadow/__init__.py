"""Floor 3: shadow mode. The scheduler decides for pods that another scheduler places, and writes nothing.

follower.py stands between the loop and the core, records.py keeps what both schedulers said of each pod,
report.py puts it into words. Made by app.py for `gangsched scheduler --shadow`.
"""
