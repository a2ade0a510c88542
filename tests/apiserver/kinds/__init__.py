"""The kinds against recordings of a real kube-apiserver."""
