"""The node's side of gangsched, one process a node: reports its devices to the API server and to kubelet.

Rooms: `sources` find devices, `report` merges them into one list (`inventory`), `reporter` decides what the
Node object should state and when (pure: takes events and the time), `node` holds the bytes of the Node
object, `app` does the I/O, `settings` and `command` are configuration and command line. The agent reports and
never decides about pods: it imports nothing of core.

`plugins` hands devices out: its `runner` runs a `device_plugin` for each resource. `hand_off` decides which
planned set is due (pure), from what `plan` reads from kubelet and the API server; `outfit` builds what a
container gets with it; `granted` builds the report on the Node; `kubelet` is our client of kubelet,
`kubelet_api` its messages. Counters of network and load are in `probes`. `app` runs all of it.
"""
