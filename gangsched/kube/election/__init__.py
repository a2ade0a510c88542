"""Leading: the lease, and the fence that keeps a former leader's writes from landing.

`lease` and `fence` are pure states, `elector` and `fence_keeper` drive them over connections of their own.
Called by the assembly, kube.effects and kube.take_over. Not here: what a leader sends (kube.effects).
"""
