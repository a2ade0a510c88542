"""The scheduler's knowledge of the cluster: nodes as arrays, pods, devices, reservations; and trial copies.

core.state and core.groups feed the Cache with nodes, pods and reservations; plugins and the cycle read it as
a ClusterView, and a cycle reserves on a Trial, a copy. Not here: decisions based on it.
"""
