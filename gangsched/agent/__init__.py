"""The node's side of gangsched, one process a node: what the node has, told to the API server.

Rooms: `sources` find devices, `inventory` makes one list of what they found, `reporter` decides what the
Node object should say and when (pure: told events and the time), `node` knows the bytes of the Node object,
`app` does the I/O, `settings` and `command` are configuration and command line. The agent reports and never
decides about pods: it imports nothing of core. Whatever else comes to live on the node (kubelet's device
plugin API, counters of network and load) is a room beside these, with its own pure part, run by `app`.
"""
