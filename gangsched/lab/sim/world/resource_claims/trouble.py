"""ClaimTrouble: what goes wrong with resource claims: another allocator, users who delete, drivers that fail.

The other allocator sees the store as it was a moment ago, and none of our promises: so it takes devices that
we have promised, before or after our own write. `repair` undoes what would keep a pod from ever running.
"""

from __future__ import annotations

from functools import partial
from random import Random

from msgspec.structs import replace

from gangsched.lab.sim.objects import STRANGER, make_pod
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.api import SimApi
from gangsched.lab.sim.world.at_random import AtRandom
from gangsched.lab.sim.world.resource_claims import objects
from gangsched.lab.sim.world.resource_claims.controllers import ClaimControllers, gpu_pools
from gangsched.lab.sim.world.resource_claims.objects import KINDS, NET_DRIVER, is_usable_on, read
from gangsched.lab.sim.world.resource_claims.server import delete_claim, put_claim
from gangsched.lab.sim.world.weather import Weather
from gangsched.model.objects import PodResourceClaim
from gangsched.model.resource_claims.objects import (
    CLAIMS,
    FINALIZER,
    TAINT_RULES,
    Allocation,
    Consumer,
    DeviceId,
    DeviceTaint,
    DeviceTaintRule,
    ResourceClaim,
)

DEEDS = (
    *("foreign_comes", "foreign_comes", "foreign_shares", "foreign_goes"),
    *("delete_claim", "edit_claim", "cut_claims"),
    *("renew_pool", "renew_in_part", "lose_device", "taint_device", "taint_by_rule"),
)
_THEIRS = "theirs"


class ClaimTrouble(AtRandom):
    """What happens to the claims and slices of one store while the weather is bad."""

    def __init__(
        self,
        api: SimApi,
        timeline: Timeline,
        weather: Weather,
        rng: Random,
        controllers: ClaimControllers,
        shared: tuple[ResourceClaim, ...],
    ) -> None:
        super().__init__(
            api,
            timeline,
            weather,
            rng,
            per_s=lambda rates: rates.mischief_per_s,
            deeds=tuple(dict.fromkeys(DEEDS)),
        )
        self._controllers = controllers
        self._shared = shared
        self._lacks: dict[str, str] = {}
        """The device that a slice lacks, by the slice's name."""
        self._whole = dict(controllers.published)

    def _draw(self) -> str:
        return self._rng.choice(DEEDS)

    def start(self) -> None:
        super().start()
        self._timeline.after(1.0, self._recreate)

    def _recreate(self) -> None:
        """A user makes a claim that several pods name anew, a while after it was deleted."""
        for one in self._shared:
            if (one.metadata.namespace, one.metadata.name) not in self._api.objects[CLAIMS]:
                self._n += 1
                meta = replace(one.metadata, uid=f"{one.metadata.uid}-t{self._n}")
                put_claim(self._api, replace(one, metadata=meta))
        self._timeline.after(self._rng.uniform(1.0, 6.0), self._recreate)

    @property
    def _claims(self) -> dict[tuple[str, ...], ResourceClaim]:
        return self._api.objects[CLAIMS]

    # -- another allocator -----------------------------------------------------------------------------

    def foreign_comes(self) -> None:
        """Chooses a device that is free by now for a claim of its own, and writes that some time later."""
        pools = [
            one
            for one in self._controllers.published.values()
            if one.spec.devices and one.spec.shared_counters is None
        ]
        pools = [one for one in pools if one.spec.node_name is None or one.spec.node_name in self._api.nodes]
        if not pools:
            return
        one = self._rng.choice(pools)
        held = {
            each.id
            for claim in self._claims.values()
            if claim.status.allocation is not None
            for each in claim.status.allocation.devices.results
        }
        driver, pool = one.spec.driver, one.spec.pool.name
        free = [each.name for each in one.spec.devices if DeviceId(driver, pool, each.name) not in held]
        if not free or any(each.consumes_counters for each in one.spec.devices):
            return
        device = self._rng.choice(free)
        node = one.spec.node_name or self._rng.choice(sorted(self._api.nodes))
        self._n += 1
        name = f"{_THEIRS}-{self._n}"
        pod = make_pod(name, gpus=0, scheduler=STRANGER)
        entry = PodResourceClaim("it", resource_claim_name=name)
        pod = replace(pod, spec=replace(pod.spec, resource_claims=[entry]))
        self._api.create_pod(pod)
        put_claim(
            self._api, objects.claim(name, "net" if driver == NET_DRIVER else "one", f"uid-claim-{name}")
        )
        given = {"request": "it", "driver": driver, "pool": pool, "device": device}
        raw: objects.Json = {"devices": {"results": [given]}}
        if one.spec.node_name is not None:
            field = {"key": "metadata.name", "operator": "In", "values": [node]}
            raw["nodeSelector"] = {"nodeSelectorTerms": [{"matchFields": [field]}]}
        late_s = self._rng.choice((0.0, 0.02, 0.1, 0.5, 1.5))
        self._timeline.after(late_s, partial(self._give, name, read(raw, Allocation)))
        self._timeline.after(late_s + 0.05, partial(self._api.bind_as_stranger, pod, node))
        if self._rng.random() < 0.5:
            self._timeline.after(late_s + self._rng.uniform(1.0, 8.0), partial(self._api.delete_pod, pod))

    def _give(self, name: str, allocation: Allocation) -> None:
        claim, pod = self._claims.get(("d", name)), self._api.pods.get(("d", name))
        if claim is None or claim.status.allocation is not None or pod is None:
            return
        meta = replace(claim.metadata, finalizers=[FINALIZER])
        entry = Consumer(resource="pods", name=name, uid=pod.metadata.uid)
        status = replace(claim.status, allocation=allocation, reserved_for=[entry])
        put_claim(self._api, replace(claim, metadata=meta, status=status))

    def foreign_shares(self) -> None:
        """A pod of another scheduler uses a claim that several pods of ours name, where it is."""
        shared = [one for one in self._claims.values() if one.metadata.controller is None]
        shared = [
            one
            for one in shared
            if one.status.allocation is not None and one.metadata.deletion_timestamp is None
        ]
        if not shared:
            return
        claim = self._rng.choice(shared)
        nodes = [name for name in self._api.nodes if is_usable_on(claim, name)]
        if not nodes:
            return
        self._n += 1
        pod = make_pod(f"shares-{self._n}", gpus=0, scheduler=STRANGER)
        entry = PodResourceClaim("it", resource_claim_name=claim.metadata.name)
        pod = replace(pod, spec=replace(pod.spec, resource_claims=[entry]))
        self._api.create_pod(pod)
        entries = [*(claim.status.reserved_for or ())]
        entries.append(Consumer(resource="pods", name=pod.metadata.name, uid=pod.metadata.uid))
        put_claim(self._api, replace(claim, status=replace(claim.status, reserved_for=entries)))
        self._timeline.after(0.05, partial(self._api.bind_as_stranger, pod, self._rng.choice(nodes)))

    def foreign_goes(self) -> None:
        """A pod of another scheduler that uses a claim is deleted."""
        pods = [
            pod
            for pod in self._api.pods.values()
            if pod.spec.scheduler_name == STRANGER and pod.spec.resource_claims
        ]
        if pods:
            self._api.delete_pod(self._rng.choice(pods))

    # -- users -----------------------------------------------------------------------------------------

    def delete_claim(self) -> None:
        if self._claims:
            delete_claim(self._api, self._rng.choice(list(self._claims.values())))

    def edit_claim(self) -> None:
        """Changes an annotation, which has no effect but on the version."""
        if self._claims:
            self._n += 1
            claim = self._rng.choice(list(self._claims.values()))
            own = {**(claim.metadata.annotations or {}), "sim/touched": str(self._n)}
            put_claim(self._api, replace(claim, metadata=replace(claim.metadata, annotations=own)))

    def cut_claims(self) -> None:
        kind = self._rng.choice((CLAIMS, CLAIMS, *KINDS))
        self._api.streams[kind].cut(self._rng.uniform(0.0, 2.0))

    # -- drivers ---------------------------------------------------------------------------------------

    def renew_pool(self) -> None:
        one = self._rng.choice(list(self._controllers.published.values()))
        self._controllers.renew(one.spec.driver, one.spec.pool.name)

    def renew_in_part(self) -> None:
        """One slice of a pool comes late: until then the pool is incomplete."""
        one = self._rng.choice(list(self._controllers.published.values()))
        self._controllers.renew(one.spec.driver, one.spec.pool.name, shows=False)
        self._timeline.after(self._rng.uniform(0.1, 3.0), self._controllers.show)

    def lose_device(self) -> None:
        """A driver stops listing a device, or lists it again; not a part: its counter would be given anew."""
        published = self._controllers.published
        whole_ones = [one for one in gpu_pools(published) if not one.spec.devices[0].consumes_counters]
        one = self._rng.choice(whole_ones)
        name, whole = one.metadata.name, self._whole[one.metadata.name].spec.devices
        lost = "" if name in self._lacks else self._rng.choice(whole).name
        self._lacks = (
            {**self._lacks, name: lost} if lost else {k: v for k, v in self._lacks.items() if k != name}
        )
        devices = [each for each in whole if each.name != lost]
        published[name] = replace(one, spec=replace(one.spec, devices=devices))
        self._controllers.renew(one.spec.driver, one.spec.pool.name)

    def taint_device(self) -> None:
        """A driver taints a device, or takes its taints off."""
        published = self._controllers.published
        one = self._rng.choice(gpu_pools(published))
        index = self._rng.randrange(len(one.spec.devices))
        devices = [*one.spec.devices]
        taints = None if devices[index].taints else [DeviceTaint("sim/broken", "", "NoSchedule")]
        devices[index] = replace(devices[index], taints=taints)
        published[one.metadata.name] = replace(one, spec=replace(one.spec, devices=devices))
        self._controllers.renew(one.spec.driver, one.spec.pool.name)

    def taint_by_rule(self) -> None:
        """An administrator taints a device, or all of a pool, or takes the rule back."""
        rules = self._api.objects[TAINT_RULES]
        if rules:
            self._api.remove_object(TAINT_RULES, self._rng.choice(list(rules)))
            return
        self._n += 1
        one = self._rng.choice(gpu_pools(self._controllers.published))
        selector = {"driver": one.spec.driver, "pool": one.spec.pool.name}
        if self._rng.random() < 0.7:
            selector["device"] = self._rng.choice(one.spec.devices).name
        raw = {
            "metadata": {"name": f"rule-{self._n}", "uid": f"uid-rule-{self._n}"},
            "spec": {"deviceSelector": selector, "taint": {"key": "sim/rule", "effect": "NoSchedule"}},
        }
        self._api.put_object(TAINT_RULES, read(raw, DeviceTaintRule))

    def repair(self) -> None:
        """Lists all devices, without taints, in pools that are complete."""
        for key in list(self._api.objects[TAINT_RULES]):
            self._api.remove_object(TAINT_RULES, key)
        published = self._controllers.published
        for name, whole in self._whole.items():
            published[name] = replace(whole, spec=replace(whole.spec, pool=published[name].spec.pool))
        for driver, pool in {(one.spec.driver, one.spec.pool.name): None for one in published.values()}:
            self._controllers.renew(driver, pool, shows=False)
        self._controllers.show()
