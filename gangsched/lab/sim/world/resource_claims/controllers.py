"""ClaimControllers: the resourceclaim controller and the devices' drivers; what a kubelet waits for.

The controller makes claims from templates, takes entries of gone and ended pods off, deallocates on the step
to an empty list, and only then; it takes the finalizer off what nobody uses. To a pod with a node it adds an
entry that is missing. The entry of a PodGroup stays until that is deleted, as users do once its pods have
ended. Drivers publish the slices of nodes that exist. Faults are in
lab.sim.world.resource_claims.trouble.
"""

from __future__ import annotations

from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.resource_claims import objects
from gangsched.lab.sim.world.resource_claims.objects import (
    DRIVER,
    Objects,
    claims_of,
    group_name,
    is_made_for,
    is_reserved_for,
    is_usable_on,
    lacks_claim,
)
from gangsched.lab.sim.world.resource_claims.server import delete_claim, put_claim
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.objects import Pod, PodResourceClaimStatus
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    FINALIZER,
    SLICES,
    Consumer,
    ResourceClaim,
    ResourceSlice,
)

_SLOW = 0.05
"""The share of rounds after which the controllers do nothing for seconds, while the weather is bad."""


class ClaimControllers:
    """Whoever tends claims and slices but the scheduler, in rounds."""

    def __init__(
        self, api: SimApi, timeline: Timeline, weather: Weather, rng: Random, first: Objects
    ) -> None:
        self._api = api
        self._timeline = timeline
        self._weather = weather
        self._rng = rng
        self._n_made = 0
        self._begun: set[str] = set()
        """PodGroups with claims that have had pods."""
        self.published: dict[str, ResourceSlice] = {
            item.metadata.name: item for kind, item in first if kind == SLICES
        }
        """What each driver has to offer, by the slice's name."""

    def start(self) -> None:
        self._timeline.after(0.02, self._round)

    @property
    def claims(self) -> dict[tuple[str, ...], ResourceClaim]:
        return self._api.objects[CLAIMS]

    def is_prepared(self, pod: Pod) -> bool:
        """Whether kubelet may start the pod: its claims are allocated on its node, and reserved for it."""
        node = pod.spec.node_name
        return not lacks_claim(pod, self._api.nodes.get(node)) and all(
            one is not None and is_usable_on(one, node) and is_reserved_for(one, pod)
            for one in claims_of(pod, self.claims)
        )

    def _round(self) -> None:
        for pod in list(self._api.pods.values()):
            if pod.spec.resource_claims and not _is_done(pod):
                self._serve(pod)
        self._end_groups()
        there = {pod.metadata.uid for pod in self._api.pods.values() if not _is_done(pod)}
        there |= {group.metadata.uid for group in self._api.groups.values()}
        for claim in list(self.claims.values()):
            self._tend(claim, there)
        self._publish()
        is_slow = self._weather.rates.mischief_per_s and self._rng.random() < _SLOW
        self._timeline.after(
            self._rng.uniform(1.0, 4.0) if is_slow else self._rng.uniform(0.05, 0.4), self._round
        )

    def _end_groups(self) -> None:
        """Deletes PodGroups with claims, all pods of which have come and ended."""
        left = {group_name(pod) for pod in self._api.pods.values() if not pod.is_terminal}
        for dialect, namespace, name in list(self._api.groups):
            if (self._api.groups[dialect, namespace, name].spec or {}).get("resourceClaims"):
                if name in left:
                    self._begun.add(name)
                elif name in self._begun:
                    self._api.delete_group(dialect, namespace, name)

    def _serve(self, pod: Pod) -> None:
        """Makes the claims of its templates, and names them in its status."""
        statuses = {one.name: one for one in pod.status.resource_claim_statuses or ()}
        for entry in pod.spec.resource_claims or ():
            if entry.resource_claim_template_name is None:
                continue
            made = next(
                (
                    one
                    for one in self.claims.values()
                    if is_made_for(one, pod)
                    and (one.metadata.annotations or {}).get(objects.ENTRY_KEY) == entry.name
                ),
                None,
            )
            if made is None:
                self._n_made += 1
                name = f"{pod.metadata.name}-{entry.name}-{self._n_made}"
                made = put_claim(
                    self._api,
                    objects.claim(
                        name, entry.resource_claim_template_name, f"uid-{name}", pod=pod, entry=entry.name
                    ),
                )
            statuses[entry.name] = PodResourceClaimStatus(entry.name, made.metadata.name)
        named = list(statuses.values())
        if named != (pod.status.resource_claim_statuses or []):
            self._api.update_pod(pod, status=replace(pod.status, resource_claim_statuses=named))

    def _tend(self, claim: ResourceClaim, there: set[str]) -> None:
        meta, status, owner = claim.metadata, claim.status, claim.metadata.controller
        entries = status.reserved_for or []
        left = [one for one in entries if one.uid in there]
        left += self._missing(claim)
        if left != entries:
            allocation = status.allocation if left else None
            put_claim(
                self._api,
                replace(claim, status=replace(status, reserved_for=left or None, allocation=allocation)),
            )
        elif owner is not None and owner.uid not in there:
            if meta.deletion_timestamp is None:
                delete_claim(self._api, claim)
            elif not entries:
                self._let_go(claim)
        elif meta.deletion_timestamp is not None and not entries:
            self._let_go(claim)

    def _missing(self, claim: ResourceClaim) -> list[Consumer]:
        """Entries of pods that have a node, and use the claim without one."""
        if claim.status.allocation is None or claim.metadata.deletion_timestamp is not None:
            return []
        found = {
            consumer.uid: consumer
            for pod in self._api.pods.values()
            if pod.spec.node_name and not is_reserved_for(claim, pod) and not _is_done(pod)
            if claim in claims_of(pod, self.claims)
            for consumer in (self._consumer(pod, claim),)
        }
        return list(found.values())

    def _consumer(self, pod: Pod, claim: ResourceClaim) -> Consumer:
        """The pod's PodGroup, if that lists the claim by its name, or the pod."""
        meta = pod.metadata
        group = self._api.groups.get(("core", meta.namespace, group_name(pod)))
        listed = (group.spec or {}).get("resourceClaims") if group is not None else None
        if group is None or all(one.get("resourceClaimName") != claim.metadata.name for one in listed or ()):
            return Consumer(resource="pods", name=meta.name, uid=meta.uid)
        own = {"resource": "podgroups", "name": group.metadata.name, "uid": group.metadata.uid}
        return Consumer(api_group="scheduling.k8s.io", **own)

    def _let_go(self, claim: ResourceClaim) -> None:
        finalizers = [one for one in claim.metadata.finalizers or () if one != FINALIZER]
        put_claim(self._api, replace(claim, metadata=replace(claim.metadata, finalizers=finalizers or None)))

    # -- drivers ---------------------------------------------------------------------------------------

    def _publish(self) -> None:
        """Removes slices of nodes that are gone, and publishes those of new ones."""
        stored = self._api.objects[SLICES]
        for name, item in self.published.items():
            node, key = item.spec.node_name, ("", name)
            is_there = node is None or node in self._api.nodes
            if is_there and key not in stored:
                self.renew(item.spec.driver, item.spec.pool.name)
            elif not is_there and key in stored:
                self._api.remove_object(SLICES, key)

    def renew(self, driver: str, pool: str, *, shows: bool = True) -> None:
        """Publishes a pool's slices anew, under a newer generation. shows: whether all of them, at once."""
        of_pool = [
            item
            for item in self.published.values()
            if (item.spec.driver, item.spec.pool.name) == (driver, pool)
        ]
        for k, item in enumerate(of_pool):
            generation = item.spec.pool.generation + 1
            spec = replace(item.spec, pool=replace(item.spec.pool, generation=generation))
            self.published[item.metadata.name] = newer = replace(item, spec=spec)
            if shows or not k:
                self._api.put_object(SLICES, newer)

    def show(self) -> None:
        """Publishes whatever is not shown as it is."""
        for name, item in self.published.items():
            node = item.spec.node_name
            if node is None or node in self._api.nodes:
                stored = self._api.objects[SLICES].get(("", name))
                if stored is None or stored.spec != item.spec:
                    self._api.put_object(SLICES, item)


def _is_done(pod: Pod) -> bool:
    """Whether it uses its claims no more: it has ended, or is deleted and was never bound."""
    return pod.is_terminal or (pod.metadata.deletion_timestamp is not None and not pod.spec.node_name)


def gpu_pools(published: dict[str, ResourceSlice]) -> list[ResourceSlice]:
    """The slices of GPUs that nodes have."""
    return [one for one in published.values() if one.spec.driver == DRIVER and one.spec.devices]
