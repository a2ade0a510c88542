"""The fields of a kubeconfig's cluster and user, made as kubectl reads them, before kubernetes-asyncio does.

Lives here: the differences that would be silent. Not here: mistakes that its loader fails at, which
kube.kubeconfig then finds. Called by loaders.
"""

from __future__ import annotations

from typing import Any


def settle(cluster: Any) -> Any:
    """A ConfigNode like this one, to be read instead: what is saved to the file later is not touched."""
    value = dict(cluster.value)
    if isinstance(value.get("server"), str):
        value["server"] = with_plain_scheme(value["server"])
    return type(cluster)(cluster.name, value, cluster.path)


def with_plain_scheme(server: str) -> str:
    """With `https` for `HTTPS`, by which the loader and we see whether to speak TLS."""
    scheme, separator, rest = server.strip().partition("://")
    return f"{scheme.lower()}{separator}{rest}"
