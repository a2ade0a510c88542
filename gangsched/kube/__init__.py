"""Floor 1: the edge to an API server: bytes in, events out; effects in, requests out.

Rooms, from the ground up:

    access      our identity towards the server, and how to reach it
    transport   requests as bytes over warm connections: sockets, TLS, HTTP/1.1, lanes, pools, streams
    watch       following kinds: list, watch, resume; JSON into events
    election    leading: the lease, and the fence that makes a late bind harmless
    effects     the core's effects carried out, lane by lane, and their outcomes

Below them: how to judge the server's answers (`status`, `evidence`). Above them: `take_over`, the steps of a
new leader before it decides.
"""
