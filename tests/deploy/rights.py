"""Rights as sets that can be compared: what a role grants, and what the API server's audit log says was used.

Lives here: both readings. Not here: making somebody use them (test_rights.py).
Source of the log's fields: k8s.io/apiserver `pkg/apis/audit/v1`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, NamedTuple

AUDIT_POLICY = """
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
- level: Metadata
"""


class Right(NamedTuple):
    """One verb on one kind (`resource` with its subresource); `name` where the role names its objects."""

    verb: str
    group: str
    resource: str
    namespace: str = ""
    name: str = ""


class Used(NamedTuple):
    """What one request needed, and the code it was answered with."""

    right: Right
    code: int


def granted(documents: Iterable[dict[str, Any]], account: str, namespace: str) -> set[Right]:
    """All that roles bound to this service account let it do; rules for paths are left out."""
    roles: dict[tuple[str, str, str], list[dict[str, Any]]] = {}
    bindings: list[tuple[str, tuple[str, str, str]]] = []
    for document in documents:
        kind, meta = document["kind"], document["metadata"]
        if kind in ("Role", "ClusterRole"):
            roles[kind, meta.get("namespace", ""), meta["name"]] = document["rules"]
        elif kind in ("RoleBinding", "ClusterRoleBinding"):
            subject = {"kind": "ServiceAccount", "name": account, "namespace": namespace}
            if subject in document["subjects"]:
                ref, where = document["roleRef"], meta.get("namespace", "")
                of = where if ref["kind"] == "Role" else ""
                bindings.append((where, (ref["kind"], of, ref["name"])))
    found = set()
    for where, role in bindings:
        for rule in roles[role]:
            for group in rule.get("apiGroups", ()):
                for resource in rule["resources"]:
                    for verb in rule["verbs"]:
                        for name in rule.get("resourceNames", [""]):
                            found.add(Right(verb, group, resource, where, name))
    return found


def used(log: Path, user: str) -> list[Used]:
    """Every request of this user for an object or a collection, in the order of the log; a line that is being
    written is of a request that nobody has waited for."""
    found = []
    for line in log.read_text().rpartition("\n")[0].splitlines():
        event = json.loads(line)
        if event["user"]["username"] != user or "objectRef" not in event:
            continue
        of = event["objectRef"]
        if "resource" not in of:
            continue
        resource = of["resource"] + (f"/{of['subresource']}" if of.get("subresource") else "")
        right = Right(
            event["verb"], of.get("apiGroup", ""), resource, of.get("namespace", ""), of.get("name", "")
        )
        found.append(Used(right, event.get("responseStatus", {}).get("code", 0)))
    return found


def covers(right: Right, need: Right) -> bool:
    """Whether the right is what the request needed."""
    return (
        (right.verb, right.group, right.resource) == (need.verb, need.group, need.resource)
        and right.namespace in ("", need.namespace)
        and right.name in ("", need.name)
    )


def missing(rights: Iterable[Right], needs: Iterable[Used]) -> list[Used]:
    """Requests that were refused, or that no right covers."""
    held = list(rights)
    return [need for need in needs if need.code == 403 or not any(covers(r, need.right) for r in held)]


def unused(rights: Iterable[Right], needs: Iterable[Used]) -> set[Right]:
    """Rights that no request made use of."""
    asked = {need.right for need in needs}
    return {right for right in rights if not any(covers(right, need) for need in asked)}
