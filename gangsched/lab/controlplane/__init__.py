"""Floor 3: a real control plane on loopback (etcd, kube-apiserver, kube-scheduler,
kube-controller-manager), for tests and the bench.

What does not live here: anything that `gangsched scheduler` needs in a cluster.
"""
