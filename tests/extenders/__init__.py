"""Extenders: the core's part in virtual time, the edge with a real HTTP server, and beside kube-scheduler."""
