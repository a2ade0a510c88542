"""What tests of every room share, once each.

bodies.py: pods, gangs and nodes as requests bring them. processes.py, tasks.py: waiting for what others do.
The family in memory, for virtual time, is tests/core/scenario.py over gangsched.sim.objects.
"""
