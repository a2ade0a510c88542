"""ExtendedResources: which device classes serve which resources, where, and by which claims.

A class serves its `extendedResourceName`, and always `deviceclass.resource.kubernetes.io/<class>`. Where a
node's device plugin offers the resource, or its inventory lists the devices, the plugin serves it. The book
has one; the cache says what nodes' plugins leave to classes.

Source: KEP-5004; k8s.io/dynamic-resource-allocation v0.37.1 `deviceclass/extendedresourcecache`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import blake2b
from types import MappingProxyType

import msgspec

from gangsched.core.resource_claims.candidates import NodeOffer
from gangsched.core.resource_claims.devices import ListedDevice
from gangsched.core.resource_claims.pod_claims import ClaimNeed
from gangsched.core.resource_claims.selectors import Selectors
from gangsched.errors import ParseError
from gangsched.model.objects import Container, Pod
from gangsched.model.resource_claims.extended import (
    ExtendedClaim,
    ExtendedNeed,
    extended_claim,
    extended_need,
)
from gangsched.model.resource_claims.objects import DEVICE_CLASS_PREFIX, DeviceClass
from gangsched.model.resources import is_extended

Amounts = Mapping[str, int]
NONE: Amounts = MappingProxyType({})
ENTRY = "extended-resources"
"""Stands for the claim among a pod's entries: none of these may have a name that is so long without a dot."""
# Of a pod's name in that of its claim, which may have 253 characters.
_MAX_NAME = 220
# Of a device that claims share, more than a node has pods.
_SHARES = 256
# Claims are few: of each kind of pod one for each kind of node.
_MAX_KEPT = 4096
_encode = msgspec.json.Encoder().encode


def not_made_yet(pod: str, attempt: int) -> str:
    """Returns what stands for the UID of the claim that is to be made for a pod, in one attempt."""
    return f"{pod}/{ENTRY}/{attempt}"


def claim_name(pod: Pod, attempt: str) -> str:
    """Returns a name for the claim that no other attempt gives, of this process or of another."""
    digest = blake2b(f"{pod.metadata.uid}/{attempt}".encode(), digest_size=5).hexdigest()
    return f"{pod.metadata.name[:_MAX_NAME].rstrip('-.')}-{ENTRY}-{digest}"


class ExtendedResources:
    """on_node: by node the resources that classes serve there, and by how many devices at most; the cache
    writes it. asked: whether a pod has begun to ask for one more of them."""

    def __init__(self, classes: Mapping[str, DeviceClass], selectors: Selectors) -> None:
        self._classes = classes
        self._selectors = selectors
        self._serving: dict[str, str] | None = None
        """By extended resource: the class that serves it; None: not known now."""
        self._named: dict[str, None] = {}
        """Resources by the names of classes that pods have asked for."""
        self._counts: dict[str, tuple[NodeOffer, Amounts]] = {}
        self._digests: dict[tuple[ExtendedNeed, frozenset[str]], str] = {}
        self.claims: dict[str, ExtendedClaim] = {}
        """By the digest of its spec."""
        self.on_node: dict[str, Amounts] = {}
        self.asked = False

    @property
    def is_in_use(self) -> bool:
        """Whether a class serves a resource that pods may ask for."""
        return bool(self._by_resource or self._named)

    def reconsider(self) -> None:
        """Forgets what follows from classes, one of which has changed."""
        self._serving = None
        self._counts.clear()

    def forget_node(self, name: str) -> None:
        """Forgets what is kept of a node that is gone."""
        self._counts.pop(name, None)
        self.on_node.pop(name, None)

    # -- classes ---------------------------------------------------------------------------------------

    @property
    def _by_resource(self) -> Mapping[str, str]:
        if self._serving is None:
            self._serving = {}
            for name, one in sorted(self._classes.items()):
                own = one.spec.extended_resource_name
                other = self._serving.get(own) if own else None
                if own and (other is None or _made_s(one) > _made_s(self._classes[other])):
                    self._serving[own] = name
        return self._serving

    def class_of(self, resource: str) -> str:
        """Returns the class that serves a resource; "" for none. Of several the newest counts, then the first
        by name."""
        if resource.startswith(DEVICE_CLASS_PREFIX):
            name = resource.removeprefix(DEVICE_CLASS_PREFIX)
            return name if name in self._classes else ""
        return self._by_resource.get(resource, "")

    def resources(self) -> Iterator[str]:
        """Yields the resources that classes serve, those by the name of a class once pods have asked."""
        yield from self._by_resource
        yield from (one for one in self._named if self.class_of(one))

    # -- pods ------------------------------------------------------------------------------------------

    def need_of(self, pod: Pod) -> ClaimNeed | None:
        """Returns what the pod asks for of resources that classes serve; None: nothing."""
        is_stated = pod.status.extended_resource_claim_status is not None
        if not self._classes and not is_stated:
            return None
        spec, classes = pod.spec, dict[str, str]()
        for container in (*(spec.init_containers or ()), *spec.containers):
            for resource in _named_in(container):
                if device_class := self.class_of(resource):
                    classes[resource] = device_class
        if not classes and not is_stated:
            return None
        try:
            need = extended_need(spec, classes)
        except ParseError:
            return None  # its template says so
        wanted = {resource for one in need.containers for resource, _, _ in one.amounts}
        for resource in wanted:
            if resource.startswith(DEVICE_CLASS_PREFIX) and resource not in self._named:
                self._named[resource] = None
                self.asked = True
        served = tuple(one for one in need.classes if one[0] in wanted)
        if not served and not is_stated:
            return None
        return ClaimNeed(ENTRY, extended=need._replace(classes=served, is_stated=is_stated))

    def on(self, needs: Sequence[ClaimNeed], node: str) -> tuple[ClaimNeed, ...]:
        """Returns what the needs of a pod are on that node, where a plugin may serve its resources."""
        if not any(need.extended is not None for need in needs):
            return tuple(needs)
        found = []
        for need in needs:
            if need.extended is None:
                found.append(need)
            elif served := need.extended.resources.intersection(self.on_node.get(node, NONE)):
                found.append(ClaimNeed(need.entry, self._digest(need.extended, served)))
        return tuple(found)

    def _digest(self, need: ExtendedNeed, served: frozenset[str]) -> str:
        key = (need, served)
        found = self._digests.get(key)
        if found is None:
            if len(self._digests) >= _MAX_KEPT:
                self._digests.clear()
                self.claims.clear()
            claim = extended_claim(need, served)
            found = self._digests[key] = blake2b(_encode(claim.spec), digest_size=16).hexdigest()
            self.claims[found] = claim
        return found

    # -- nodes -----------------------------------------------------------------------------------------

    def served(self, offer: NodeOffer) -> Amounts:
        """Returns for each resource by how many devices classes could serve it on the node, whoever has them
        now; nothing where no driver publishes anything."""
        if not offer.pools:
            return NONE
        kept = self._counts.get(offer.name)
        if kept is None or kept[0] is not offer:
            counts = {one: self._count(offer, self.class_of(one)) for one in self.resources()}
            kept = self._counts[offer.name] = offer, counts
        return kept[1]

    def _count(self, offer: NodeOffer, device_class: str) -> int:
        selectors = self._classes[device_class].spec.selectors or ()
        texts = [one.cel.expression for one in selectors if one.cel is not None]
        if len(texts) < len(selectors):
            return 0
        return sum(
            _SHARES if device.shareable else 1
            for device, _ in offer.devices
            if offer.has(device) and self._suits(device, texts)
        )

    def _suits(self, device: ListedDevice, texts: Sequence[str]) -> bool:
        return all(self._selectors.verdict(text, device) is True for text in texts)


def _named_in(container: Container) -> Iterator[str]:
    stated = container.resources
    if stated is not None:
        for names in (stated.requests, stated.limits):
            for name in names or ():
                if "/" in name and (is_extended(name) or name.startswith(DEVICE_CLASS_PREFIX)):
                    yield name


def _made_s(one: DeviceClass) -> float:
    made = one.metadata.creation_timestamp
    return 0.0 if made is None else made.timestamp()
