"""Requests as bytes over warm connections: sockets, TLS, HTTP/1.1, lanes, pools and streams.

Of Kubernetes it knows only credentials and Status answers. Called by kube.client, watch, effects,
election.
"""
