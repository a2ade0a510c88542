"""Victims: the cheapest pods to evict so that a whole unit fits, for gangs and for lone pods.

Called by the DefaultPreemption plugin in PostFilter; tries on Trials and decides nothing. Not here: the
evictions and the wait for them (core.kept.nominations).
"""
