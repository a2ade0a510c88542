"""How long groups run, and how many groups have started in front of one that does not fit.

Here is counted and predicted, where the configuration has `queueing`; without it nobody calls. Not here: what
a pod states (model.walltime), the order of the line (core.state.queue).
"""
