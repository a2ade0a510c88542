"""The queries of a view of the cluster, one file per subject; core.cache.cluster_view has all of them.

    rows      which nodes there are, in which row each is, and which rows have changed
    nodes     labels, taints and images of nodes
    room      resources: allocatable, free; host ports
    devices   device IDs: inventories, which are free, which a pod placed on this view has
    pods      pods on nodes, how many match a term, which are placed on this view
    objects   other objects that an enabled plugin watches

A function that needs one subject declares it: `def unlabelled(view: DeviceQueries)`. Its callers pass the
view that they have, a ClusterView or a Trial. Not here: placing pods (core.cache.trial), the data
(core.cache).
"""
