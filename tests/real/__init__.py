"""Tests against a real etcd and kube-apiserver; each one carries the `real` mark."""
