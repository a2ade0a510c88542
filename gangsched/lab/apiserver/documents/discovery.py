"""The discovery documents: groups, versions and resources, in the forms that clients request.

Lives here: the documents below /api and /apis, from the table of resources. Not here: the table
(lab.apiserver.resources), OpenAPI. Called by the HTTP face. Source of shape and order: a real server's
documents; k8s.io/api apidiscovery/v2; the order of groups is that of DefaultGenericAPIServicePriorities.
"""

from __future__ import annotations

import re
from base64 import b64encode
from hashlib import sha256
from typing import Any, NamedTuple

import msgspec

from gangsched.lab.apiserver.http.negotiation import JSON, YAML, Media, Shape, negotiate, of_discovery
from gangsched.lab.apiserver.resources import Resource, Resources, Subresource
from gangsched.lab.apiserver.status import unknown_path

AGGREGATED = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
_AGGREGATED = Media(JSON, Shape("apidiscovery.k8s.io", "v2", "APIGroupDiscoveryList"))

# Groups in the order of the real server; all others follow by name.
_GROUP_ORDER = (
    "apps",
    "events.k8s.io",
    "authentication.k8s.io",
    "authorization.k8s.io",
    "autoscaling",
    "batch",
    "certificates.k8s.io",
    "networking.k8s.io",
    "policy",
    "rbac.authorization.k8s.io",
    "storage.k8s.io",
    "admissionregistration.k8s.io",
    "apiextensions.k8s.io",
    "scheduling.k8s.io",
    "coordination.k8s.io",
    "node.k8s.io",
    "discovery.k8s.io",
    "resource.k8s.io",
    "flowcontrol.apiserver.k8s.io",
    "storagemigration.k8s.io",
)
_VERSION = re.compile(r"v(\d+)(?:(alpha|beta)(\d+))?\Z")

Json = dict[str, Any]
_encode = msgspec.json.Encoder().encode


class Document(NamedTuple):
    """An answer as it is sent; `etag` is empty if the real server sends none."""

    body: bytes
    content_type: str
    etag: str


class Discovery:
    """The documents, made on request and cached until the table of resources changes.

    `address`: the host:port to which clients are told to connect.
    """

    def __init__(self, resources: Resources, address: str) -> None:
        self._resources = resources
        self._address = address
        self._documents: dict[tuple[str, Media], Document] = {}
        self._revision = resources.revision

    def answer(self, path: str, accept: str = "") -> Document | None:
        """Returns the document at /api, /apis or below; None if the real server has no such path at all.

        Raises: StatusError (404 for a version that its group does not have, 406).
        """
        if self._revision != self._resources.revision:
            self._documents.clear()
            self._revision = self._resources.revision
        parts = path.strip("/").split("/")
        roots = parts in (["api"], ["apis"])
        media = negotiate(accept, of_discovery if roots else _nothing)
        key = ("/".join(parts), media)
        if key not in self._documents:
            made = self._aggregated(parts[0]) if media.shape else self._single(parts)
            if made is None:
                return None
            body = msgspec.yaml.encode(made) if media.type == YAML else _encode(made)
            etag = f'"{sha256(body).hexdigest().upper()}"' if media.shape else ""
            content_type = AGGREGATED if media == _AGGREGATED else media.type
            self._documents[key] = Document(body, content_type, etag)
        return self._documents[key]

    def groups(self) -> dict[str, list[str]]:
        """Returns the groups but the core one in order, each with its versions, the preferred one first."""
        known = self._resources.groups()
        order = {name: at for at, name in enumerate(_GROUP_ORDER)}
        names = sorted((name for name in known if name), key=lambda name: (order.get(name, 99), name))
        return {name: sorted(known[name], key=version_order) for name in names}

    def _single(self, parts: list[str]) -> Json | None:
        match parts:
            case ["api"]:
                server = {"clientCIDR": "0.0.0.0/0", "serverAddress": self._address}
                return {"kind": "APIVersions", "versions": ["v1"], "serverAddressByClientCIDRs": [server]}
            case ["api", version]:
                return self._resource_list("", version)
            case ["apis"]:
                groups = [_group(name, versions) for name, versions in self.groups().items()]
                return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
            case ["apis", group]:
                versions = self.groups().get(group)
                if versions is None:
                    return None
                return {"kind": "APIGroup", "apiVersion": "v1", **_group(group, versions)}
            case ["apis", group, version]:
                return self._resource_list(group, version) if group else None
        return None

    def _resource_list(self, group: str, version: str) -> Json:
        found = self._resources.of_version(group, version)
        if not found:
            raise unknown_path()
        entries = [entry for resource in found for entry in _entries(resource, version)]
        opening: Json = {"kind": "APIResourceList"}
        if group:
            opening["apiVersion"] = "v1"
        return {**opening, "groupVersion": f"{group}/{version}" if group else version, "resources": entries}

    def _aggregated(self, root: str) -> Json:
        groups = self.groups() if root == "apis" else {"": ["v1"]}
        items = []
        for name, versions in groups.items():
            of_versions = [
                {
                    "version": version,
                    "resources": [
                        _described(each, version) for each in self._resources.of_version(name, version)
                    ],
                    "freshness": "Current",
                }
                for version in versions
            ]
            items.append({"metadata": {"name": name} if name else {}, "versions": of_versions})
        return {
            "kind": "APIGroupDiscoveryList",
            "apiVersion": "apidiscovery.k8s.io/v2",
            "metadata": {},
            "items": items,
        }


def version_order(version: str) -> tuple[int, int, int, str]:
    """Sorts stable versions before beta before alpha, later ones first; other names last, by name.

    Source: k8s.io/apimachinery pkg/version, CompareKubeAwareVersionStrings.
    """
    found = _VERSION.match(version)
    if found is None:
        return 3, 0, 0, version
    stage = {None: 0, "beta": 1, "alpha": 2}[found[2]]
    return stage, -int(found[1]), -int(found[3] or 0), version


def _nothing(_: object) -> bool:
    return False


def _group(name: str, versions: list[str]) -> Json:
    entries = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": entries, "preferredVersion": entries[0]}


def _entries(resource: Resource, version: str) -> list[Json]:
    """A resource and its subresources in an APIResourceList."""
    entry: Json = {
        "name": resource.plural,
        "singularName": resource.singular,
        "namespaced": resource.namespaced,
        "kind": resource.kind,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        entry["shortNames"] = resource.short_names
    if resource.categories:
        entry["categories"] = resource.categories
    if resource.stored:
        entry["storageVersionHash"] = _storage_hash(resource)
    entries = [entry]
    for each in resource.subresources:
        below = {
            "name": f"{resource.plural}/{each.name}",
            "singularName": "",
            "namespaced": resource.namespaced,
        }
        if each.group is not None:
            below |= {"group": each.group, "version": each.version}
        entries.append({**below, "kind": each.kind, "verbs": each.verbs})
    return entries


def _described(resource: Resource, version: str) -> Json:
    """A resource in aggregated discovery, its subresources inside it."""
    described: Json = {
        "resource": resource.plural,
        "responseKind": _response_kind(resource, version, resource),
        "scope": "Namespaced" if resource.namespaced else "Cluster",
        "singularResource": resource.singular,
        "verbs": resource.verbs,
    }
    if resource.short_names:
        described["shortNames"] = resource.short_names
    if resource.categories:
        described["categories"] = resource.categories
    if resource.subresources:
        described["subresources"] = [
            {
                "subresource": each.name,
                "responseKind": _response_kind(resource, version, each),
                "verbs": each.verbs,
            }
            for each in resource.subresources
        ]
    return described


def _response_kind(resource: Resource, version: str, of: Resource | Subresource) -> Json:
    """Names the kind of a response; built-in kinds of the requested group have no group and version."""
    group, at = "", ""
    if resource.custom:
        group, at = resource.group, version
    elif isinstance(of, Subresource) and of.group is not None:
        group, at = of.group, of.version or ""
    return {"group": group, "version": at, "kind": of.kind}


def _storage_hash(resource: Resource) -> str:
    """A hash that tells clients when the stored version has changed (discovery.StorageVersionHash)."""
    digest = sha256(f"{resource.group}/{resource.version}/{resource.kind}".encode()).digest()
    return b64encode(digest[:8]).decode()
