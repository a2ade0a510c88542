"""What tests of every room share, once each.

bodies.py: pods, gangs and nodes as requests bring them. scenario.py: the same as objects in memory, and a
cluster that schedules them in virtual time. processes.py, tasks.py: waiting for what others do.
"""
