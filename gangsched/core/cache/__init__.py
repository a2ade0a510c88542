"""The cluster as the scheduler believes it to be: nodes as arrays, pods, devices, promises; and copies to try
on.

The Cache is told of nodes, pods and reservations by core.state and core.groups; a ClusterView is what
plugins and the cycle read of it, a Trial the copy on which a cycle reserves. Not here: what to do about
any of it.
"""
