"""The node's side of gangsched, one process a node: what the node has, told to the API server and to kubelet.

Rooms: `sources` find devices, `inventory` makes one list of what they found, `reporter` decides what the
Node object should say and when (pure: told events and the time), `node` knows the bytes of the Node object,
`app` does the I/O, `settings` and `command` are configuration and command line. The agent reports and never
decides about pods: it imports nothing of core.

Devices are handed out by `handing`, which runs a `device_plugin` for each resource: `hand_off` says which
planned set is meant (pure), out of what `plan` reads from kubelet and from the API server, `outfit` what a
container gets with it, `reporting` what is said of it on the Node; `kubelet` is kubelet as we call it,
`kubelet_api` its messages. Counters of network and load are in `probes`. All of it is run by `app`.
"""
