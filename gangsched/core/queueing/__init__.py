"""How long groups run, and how many groups have started in front of one that does not fit.

Counts and predicts, if the configuration has `queueing`; without it nothing here is called. Not here: what a
pod states (model.walltime), the order of the line (core.state.queue).
"""
