"""Which pods are evicted, in the words of messages."""

LOWER = "pods of lower priority"
"""The victims of preemption, unless a rule of queues names others."""
PAST_WALLTIME = "pods past their walltime"
"""The victims that yield to a claim."""
