"""What a view of the cluster is asked, one file a subject; core.cache.cluster_view is all of them in one.

    rows      which nodes there are, in which row each is, and which rows have changed
    nodes     labels, taints and images of nodes
    room      resources: allocatable, free; host ports
    devices   device IDs: inventories, which are free, which a pod placed on this view has
    pods      pods on nodes, how many match a term, what those placed on this view are
    objects   other objects that an enabled plugin watches

A function that needs one subject says so: `def unlabelled(view: DeviceQueries)`. Its callers pass the view
that they have, a ClusterView or a Trial. Not here: placing pods (core.cache.trial), the data (core.cache).
"""
