"""Whose pods are evicted, in the words of messages."""

LOWER = "pods of lower priority"
"""The victims of preemption, in words, where no rule of queues says otherwise."""
PAST_WALLTIME = "pods past their walltime"
"""Likewise, those that yield to a claim."""
