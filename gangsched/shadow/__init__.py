"""Floor 3: shadow mode. The scheduler decides for pods that another scheduler places, and writes nothing.

follower.py stands between the loop and the core, records.py keeps both schedulers' results for each pod,
report.py formats them. Made by process.app for `gangsched scheduler --shadow`.
"""
