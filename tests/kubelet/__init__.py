"""A kubelet of the tests, written from kubelet's published protocol and its behaviour, and what it shows."""
