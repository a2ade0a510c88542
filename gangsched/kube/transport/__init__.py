"""Requests as bytes over warm connections: sockets, TLS, HTTP/1.1, lanes, pools and streams.

Knows nothing of Kubernetes but credentials and Status answers. Called by kube.client, watch, effects,
election.
"""
