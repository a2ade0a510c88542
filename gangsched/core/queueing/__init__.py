"""How long groups run, and how many groups have bypassed a group that does not fit.

Called only if the configuration has `queueing`. Not here: what a pod states (model.walltime), the order of
the line (core.state.line.queue).
"""
