"""Rewrites a kubeconfig's cluster and user as kubectl reads them, before kubernetes-asyncio reads them.

Lives here: differences that would go unnoticed, such as "false" in quotes, which its loader takes for true.
Not here: mistakes at which it fails, which kube.access.kubeconfig then finds. Called by loaders.
"""

from __future__ import annotations

from typing import Any

from gangsched.errors import ConfigError
from gangsched.kube.access.kubeconfig import type_of

_TEXTS = {
    "cluster": ("certificate-authority", "certificate-authority-data", "tls-server-name", "proxy-url"),
    "user": (
        *("token", "tokenFile", "username", "password"),
        *("client-certificate", "client-certificate-data", "client-key", "client-key-data"),
    ),
}
_MAPPINGS = {"cluster": (), "user": ("exec", "auth-provider")}
_IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
_IS_UNSAFE = "insecure-skip-tls-verify"


def settle(node: Any, kind: str) -> Any:
    """Returns a copy of this ConfigNode to read instead; what is later saved to the file does not change.

    kind: cluster or user. Leaves out null and empty values, as kubectl does. Raises: ConfigError.
    """
    value = {name: one for name, one in node.value.items() if one is not None and one != ""}
    _check(node, kind, value, _TEXTS[kind], str, "text")
    _check(node, kind, value, _MAPPINGS[kind], dict, "a mapping")
    if kind == "user":
        _check_impersonation(node, value)
    if kind == "cluster":
        _check(node, kind, value, (_IS_UNSAFE,), bool, "true or false")
        _check_name(node, value.get("tls-server-name", ""))
        if isinstance(value.get("server"), str):
            value["server"] = with_plain_scheme(value["server"])
    return type(node)(node.name, value, node.path)


def _check(
    node: Any, kind: str, value: dict[str, Any], names: tuple[str, ...], type_: type, right: str
) -> None:
    for name in names:
        if name in value and not isinstance(value[name], type_):
            problem = f"must be {right}, not {type_of(value[name])}"
            raise ConfigError(problem, source=node.path, path=f"{kind}s[].{kind}.{name}")


def _check_impersonation(node: Any, value: dict[str, Any]) -> None:
    """Rejects impersonation: the loader ignores it, so requests would have the user's own rights."""
    for name in _IMPERSONATION:
        if name in value:
            raise ConfigError(
                "impersonation is not supported: give a user or a token with these rights",
                source=node.path,
                path=f"users[].user.{name}",
            )


def _check_name(node: Any, name: str) -> None:
    """Rejects names at which TLS fails in ways that no connection expects."""
    try:
        name.encode("idna")
        is_name = name.isprintable()
    except UnicodeError:
        is_name = False
    if not is_name:
        path = "clusters[].cluster.tls-server-name"
        raise ConfigError(f"{name!r} is not a host name", source=node.path, path=path)


def with_plain_scheme(server: str) -> str:
    """Lower-cases the scheme, by which the loader and we decide whether to use TLS."""
    scheme, separator, rest = server.strip().partition("://")
    return f"{scheme.lower()}{separator}{rest}"
