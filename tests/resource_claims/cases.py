"""Clusters with devices and claims by chance: `case(seed, at)` is the same case whenever it is asked for.

The API server accepts every object. About half of the nodes can serve the claims, and each rule of the
allocator decides now and then: flaws of pools, taints, counters, capacity, constraints, errors of selectors.
"""

from __future__ import annotations

import random
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

Case = dict[str, Any]
"""The v1 objects of a cluster and of what is to be allocated in it, by kind."""
Object = dict[str, Any]

DRIVERS = ("gpu.example.com", "nic.example.com", "fpga.example.com", "mem.example.com")
COMMON = "resource.kubernetes.io"
"""The domain of attributes that all drivers may use."""
ADMIN_NAMESPACE = "admin"
"""A namespace with the label that lets its claims have admin access."""
_ZONES = ("a", "b", "c")
_TAINTED = ("gpu.example.com/lost", "maintenance")
_EFFECTS = ("None", "NoSchedule", "NoExecute")
_ATTRIBUTES: dict[str, tuple[Object, ...]] = {
    "model": ({"string": "A100"}, {"string": "H100"}, {"string": "H100"}),
    "numa": ({"int": 0}, {"int": 1}, {"int": 1}),
    "fast": ({"bool": True}, {"bool": True}, {"bool": False}),
    "firmware": ({"version": "1.2.0"}, {"version": "1.10.0"}, {"version": "2.0.0-rc.1"}),
    f"{COMMON}/pcieRoot": ({"string": "pci0000:00"}, {"string": "pci0000:80"}),
    "other.example.com/rack": ({"string": "r1"}, {"int": 1}, {"string": "r2"}),
}
_CAPACITIES = ("memory", "slots", "other.example.com/rate")


def case(seed: int, at: int) -> Case:
    """The case of that number in the row that a seed makes."""
    return Cluster(random.Random(f"{seed}/{at}")).case()


@dataclass(slots=True)
class _Driver:
    """What the devices of a driver have in common. units: of each capacity, what its numbers are times of."""

    name: str
    attributes: tuple[str, ...]
    units: dict[str, str]
    counters: bool
    shared: float
    full_names: bool
    tainted: float
    conditions: float
    published: list[tuple[str, Object]] = field(default_factory=list)
    """The devices, each with its pool."""


class Cluster:
    """Draws the objects of one case, and more claims for the same devices."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.slices: list[Object] = []
        self.nodes: list[str] = []
        self.drivers: list[_Driver] = []
        self.drivers_of: dict[str, _Driver | None] = {}
        """By class, the driver that its devices are likely of."""

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability

    def weighted(self, **weights: float) -> str:
        return self.rng.choices(list(weights), list(weights.values()))[0]

    def number(self, *weights: float) -> int:
        """0, 1, 2 … by these weights."""
        return self.rng.choices(range(len(weights)), weights)[0]

    def case(self) -> Case:
        nodes = [self.node(f"node-{at}") for at in range(1 + self.number(25, 30, 20, 10, 8, 7))]
        self.nodes = [node["metadata"]["name"] for node in nodes]
        self.drivers = [self.driver(name) for name in self.rng.sample(DRIVERS, self.number(1, 52, 32, 11, 4))]
        for driver in self.drivers:
            self.pools(driver)
        self.rng.shuffle(self.slices)
        classes = [self.device_class(f"class-{at}") for at in range(1 + self.number(30, 45, 25))]
        names = [one["metadata"]["name"] for one in classes]
        return {
            "nodes": nodes,
            "slices": self.slices,
            "classes": classes,
            "rules": [self.rule(f"rule-{at}") for at in range(self.number(80, 15, 5))],
            "allocated": self.allocated(names[0]),
            "claims": [self.claim(f"claim-{at}", names) for at in range(1 + self.number(65, 27, 8))],
        }

    def node(self, name: str) -> Object:
        labels = {"kubernetes.io/hostname": name, "zone": self.rng.choice(_ZONES)}
        if self.chance(0.7):
            labels["size"] = str(self.rng.randint(1, 9))
        return {"apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}}

    # Drivers, pools, slices.

    def driver(self, name: str) -> _Driver:
        kind = self.weighted(plain=40, partitions=25, shares=25, both=10)
        return _Driver(
            name=name,
            attributes=tuple(
                one if "/" in one or self.chance(0.7) else f"{name}/{one}"
                for one in _ATTRIBUTES
                if self.chance(0.75)
            ),
            units={one: self.rng.choice(("", "Gi", "k", "m")) for one in _CAPACITIES if self.chance(0.6)},
            counters=kind in ("partitions", "both"),
            shared=self.rng.choice((0.3, 0.7, 1.0)) if kind in ("shares", "both") else 0.0,
            full_names=self.chance(0.5),
            tainted=self.rng.choice((0.0, 0.0, 0.0, 0.15, 0.5)),
            conditions=self.rng.choice((0.0, 0.0, 0.0, 0.3)),
        )

    def pools(self, driver: _Driver) -> None:
        if self.chance(0.92):
            for node in self.nodes:
                if self.chance(0.95):
                    self.pool(driver, node, lambda node=node: {"nodeName": node})
        if self.chance(0.35):
            for at in range(1 + self.number(75, 25)):
                places = self.places()
                self.pool(driver, f"net-{at}", lambda places=places: self.rng.choice(places)())

    def places(self) -> Sequence[Any]:
        """The ways in which the slices of one pool that is not of one node reach nodes."""
        kinds = {
            "all": lambda: {"allNodes": True},
            "selector": lambda: {"nodeSelector": self.node_selector()},
            "node": lambda: {"nodeName": self.rng.choice(self.nodes)},
            "device": lambda: {"perDeviceNodeSelection": True},
        }
        return [kinds[one] for one in self.rng.sample(list(kinds), 1 + self.number(70, 30))]

    def node_selector(self, n_terms: int = 1) -> Object:
        return {"nodeSelectorTerms": [self.term() for _ in range(n_terms)]}

    def term(self) -> Object:
        if self.chance(0.15):
            values = [self.rng.choice(self.nodes)]
            operator = self.weighted(In=70, NotIn=30)
            return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": values}]}
        expressions = [self.requirement() for _ in range(1 + self.number(80, 20))]
        if self.chance(0.02):
            # The API server does not look whether it is a number: nothing is allocated where it is read.
            expressions.append({"key": "size", "operator": "Gt", "values": ["big"]})
        return {"matchExpressions": expressions}

    def requirement(self) -> Object:
        match self.weighted(zone=60, size=15, exists=15, absent=10):
            case "zone":
                operator = self.weighted(In=80, NotIn=20)
                zones = self.rng.sample(_ZONES, 2 if operator == "In" else 1)
                return {"key": "zone", "operator": operator, "values": zones}
            case "size":
                operator = self.weighted(Gt=50, Lt=50)
                return {"key": "size", "operator": operator, "values": [str(self.rng.randint(1, 9))]}
            case "exists":
                return {"key": self.rng.choice(("zone", "size")), "operator": "Exists"}
            case _:
                return {"key": self.rng.choice(("size", "broken")), "operator": "DoesNotExist"}

    def pool(self, driver: _Driver, name: str, place: Any) -> None:
        """Publishes a pool of a driver; now and then one with a flaw."""
        sets = self.counter_sets() if driver.counters and self.chance(0.85) else []
        specs: list[Object] = [
            {
                **place(),
                "devices": [self.device(driver, sets) for _ in range(1 + self.number(15, 30, 35, 20))],
            }
            for _ in range(1 + self.number(75, 20, 5))
        ]
        at = 0
        for spec in specs:
            for device in spec["devices"]:
                device["name"] = f"dev-{at}"
                at += 1
                self.reach(device, spec)
                driver.published.append((name, device))
        if sets:
            self.spread(specs, sets, place)
        generation = self.rng.choice((0, 1, 1, 1, 2, 7))
        count = len(specs)
        if self.chance(0.13):
            count, generation = self.flaw(driver, name, specs, place, generation)
        self.publish(driver, name, specs, generation, count)

    def spread(self, specs: list[Object], sets: list[Object], place: Any) -> None:
        """Adds the slices with the counter sets; the server wants them apart from devices."""
        parts = [sets] if len(sets) == 1 or self.chance(0.7) else [[one] for one in sets]
        specs += [{**place(), "sharedCounters": part} for part in parts]

    def publish(
        self, driver: _Driver, pool: str, specs: Sequence[Object], generation: int, count: int
    ) -> None:
        for spec in specs:
            name = "".join(self.rng.choices(string.ascii_lowercase + string.digits, k=8))
            pool_spec = {"name": pool, "generation": generation, "resourceSliceCount": max(count, 1)}
            self.slices.append(
                {
                    "apiVersion": "resource.k8s.io/v1",
                    "kind": "ResourceSlice",
                    "metadata": {"name": f"s-{name}"},
                    "spec": {"driver": driver.name, "pool": pool_spec, **spec},
                }
            )

    def reach(self, device: Object, spec: Object) -> None:
        """Says for a device where it is, if its slice leaves that to the devices."""
        if not spec.get("perDeviceNodeSelection"):
            return
        match self.weighted(node=45, all=25, selector=30):
            case "node":
                device["nodeName"] = self.rng.choice(self.nodes)
            case "all":
                device["allNodes"] = True
            case _:
                # Several terms let the server pass, and the allocator does not take.
                device["nodeSelector"] = self.node_selector(2 if self.chance(0.08) else 1)

    def flaw(
        self, driver: _Driver, name: str, specs: list[Object], place: Any, generation: int
    ) -> tuple[int, int]:
        """Spoils a pool that is about to be published; returns the count it states, and its generation."""
        count = len(specs)
        match self.weighted(
            missing=20, surplus=8, elsewhere=15, newer=15, older=20, device=14, set=8, counter=8, gone=4
        ):
            case "missing":
                specs.pop(self.rng.randrange(count)) if count > 1 and self.chance(0.7) else None
                count += 0 if len(specs) < count else 1
            case "surplus":
                specs.append({**place(), "devices": self.more(driver, specs)})
                self.reach_all(specs[-1])
            case "elsewhere":
                spec: Object = {"nodeName": self.rng.choice([*self.nodes, "node-gone"])}
                self.publish(driver, name, [spec], generation + 1, self.rng.randint(1, 2))
            case "newer":
                spec = {**place(), "devices": self.more(driver, specs)}
                self.reach_all(spec)
                self.publish(
                    driver, name, [spec], generation + self.rng.randint(1, 2), self.rng.randint(1, 2)
                )
            case "older":
                generation += 1
                spec = {**place(), "devices": self.more(driver, specs)}
                self.reach_all(spec)
                self.publish(driver, name, [spec], generation - 1, self.rng.randint(1, 2))
            case "device":
                copied = {**self.device(driver, []), "name": "dev-0"}
                specs.append({**place(), "devices": [copied]})
                self.reach_all(specs[-1])
                count += 1
            case "set":
                twice = [{"name": "set-0", "counters": {"memory": {"value": "1"}}}]
                specs += [{**place(), "sharedCounters": twice} for _ in range(self.rng.choice((1, 2)))]
                count = len(specs)
            case "counter":
                devices = [one for spec in specs for one in spec.get("devices", ())]
                set_name = self.rng.choice(("set-0", "set-none"))
                self.rng.choice(devices)["consumesCounters"] = [
                    {"counterSet": set_name, "counters": {"unknown": {"value": "1"}}}
                ]
            case _:
                for spec in specs:
                    if "nodeName" in spec:
                        spec["nodeName"] = "node-gone"
        return count, generation

    def more(self, driver: _Driver, specs: Sequence[Object]) -> list[Object]:
        """Devices of another slice or generation; some are called as those of `specs`."""
        at = self.rng.choice((0, 20))
        return [
            {**self.device(driver, []), "name": f"dev-{at + more}"} for more in range(self.rng.randint(1, 2))
        ]

    def reach_all(self, spec: Object) -> None:
        for device in spec["devices"]:
            self.reach(device, spec)

    # Devices.

    def counter_sets(self) -> list[Object]:
        return [
            {
                "name": f"set-{at}",
                "counters": {
                    name: {"value": f"{self.rng.randint(1, 4) * 10}{unit}"}
                    for name, unit in (("memory", "Gi"), ("cores", ""))[: self.rng.randint(1, 2)]
                },
            }
            for at in range(1 + self.number(60, 40))
        ]

    def device(self, driver: _Driver, sets: Sequence[Object]) -> Object:
        """A device without its name."""
        shared = self.chance(driver.shared)
        device: Object = {}
        if attributes := dict(self.attributes(driver)):
            device["attributes"] = attributes
        if capacity := dict(self.capacities(driver, shared=shared)):
            device["capacity"] = capacity
        if shared:
            device["allowMultipleAllocations"] = True
        if sets and self.chance(0.85):
            device["consumesCounters"] = [
                self.consumption(one)
                for one in self.rng.sample(sets, 1 + (len(sets) > 1 and self.chance(0.3)))
            ]
        if self.chance(driver.tainted):
            device["taints"] = [self.taint() for _ in range(1 + self.number(85, 15))]
        if self.chance(driver.conditions):
            device["bindingConditions"] = ["example.com/attached"]
            device["bindingFailureConditions"] = ["example.com/failed"]
        if self.chance(0.05):
            device["bindsToNode"] = True
        return device

    def attributes(self, driver: _Driver) -> Iterator[tuple[str, Object]]:
        for name in driver.attributes:
            if self.chance(0.96):
                values = _ATTRIBUTES[name.removeprefix(f"{driver.name}/")]
                yield name, self.rng.choice(values) if self.chance(0.97) else {"string": "odd"}

    def consumption(self, counter_set: Object) -> Object:
        share = self.rng.choice((1, 2, 2, 3, 5))
        return {
            "counterSet": counter_set["name"],
            "counters": {
                name: {"value": _divided(counter["value"], share)}
                for name, counter in counter_set["counters"].items()
                if name == "memory" or self.chance(0.8)
            },
        }

    def capacities(self, driver: _Driver, *, shared: bool) -> Iterator[tuple[str, Object]]:
        for name, unit in driver.units.items():
            if not self.chance(0.92):
                continue
            value = self.rng.choice((4, 8, 10, 16, 40))
            capacity: Object = {"value": amount(value, unit)}
            if shared and self.chance(0.7):
                capacity["requestPolicy"] = self.policy(value, unit)
            if self.chance(0.01):
                # More than 64 bits hold: what is asked for of it cannot be rounded.
                capacity = {"value": "20E"}
                if shared:
                    odd = {"min": "0", "step": "3"}
                    capacity["requestPolicy"] = {"default": "0", "validRange": odd}
            yield name, capacity

    def policy(self, value: int, unit: str) -> Object:
        match self.weighted(default=20, values=30, range=50):
            case "default":
                return {"default": amount(self.rng.randint(1, value), unit)}
            case "values":
                values = sorted(self.rng.sample(range(1, value + 1), self.rng.randint(1, 4)))
                valid = [amount(one, unit) for one in values]
                return {"default": self.rng.choice(valid), "validValues": valid}
        least = self.rng.randint(0, 2) if self.chance(0.2) else 1
        # Steps are looked at in whole numbers: those of 1.5 must be two of them.
        step = 2 if unit == "m" else self.rng.randint(1, min(3, value - least))
        n_steps = (value - least) // step
        most = self.rng.randint(1, n_steps)
        policy: Object = {
            "default": amount(least + step * self.rng.randint(0, most), unit),
            "validRange": {"min": amount(least, unit)},
        }
        if self.chance(0.6):
            policy["validRange"]["step"] = amount(step, unit)
        if self.chance(0.5):
            policy["validRange"]["max"] = amount(least + step * most, unit)
        return policy

    def taint(self) -> Object:
        taint = {"key": self.rng.choice(_TAINTED), "effect": self.rng.choice(_EFFECTS)}
        if self.chance(0.6):
            taint["value"] = self.rng.choice(("v1", "v2"))
        return taint

    def rule(self, name: str) -> Object:
        selector: Object = {}
        if self.drivers and self.chance(0.7):
            driver = self.rng.choice(self.drivers)
            selector["driver"] = driver.name
            if driver.published:
                pool, device = self.rng.choice(driver.published)
                if self.chance(0.5):
                    selector["pool"] = pool
                if self.chance(0.6):
                    selector["device"] = device["name"]
        elif self.chance(0.7):
            selector["device"] = "dev-0"
        spec: Object = {"taint": self.taint()}
        # Without a selector it is of no device.
        if selector or self.chance(0.5):
            spec["deviceSelector"] = selector
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceTaintRule",
            "metadata": {"name": name},
            "spec": spec,
        }

    # Selectors and classes.

    def a_driver(self) -> _Driver | None:
        return self.rng.choice(self.drivers) if self.drivers else None

    def expression(self, driver: _Driver) -> str:
        """About what a driver's devices have; of devices without it, some are errors."""
        match self.weighted(attribute=72, capacity=22, shared=6):
            case "attribute" if driver.attributes:
                qualified = self.rng.choice(driver.attributes)
                domain, slash, short = qualified.rpartition("/")
                value = self.rng.choice(_ATTRIBUTES[qualified.removeprefix(f"{driver.name}/")])
                return self.about(f'device.attributes["{domain if slash else driver.name}"]', short, value)
            case "capacity" if driver.units:
                qualified, unit = self.rng.choice(list(driver.units.items()))
                domain, slash, short = qualified.rpartition("/")
                domain = domain if slash else driver.name
                least = amount(self.rng.choice((1, 4, 8, 16)), unit)
                there = f'"{short}" in device.capacity["{domain}"] && ' if self.chance(0.75) else ""
                of = f'device.capacity["{domain}"].{short}'
                return f'{there}{of}.compareTo(quantity("{least}")) >= 0'
        return self.rng.choice(
            ("device.allowMultipleAllocations", "!device.allowMultipleAllocations", "true")
        )

    def about(self, of: str, name: str, value: Object) -> str:
        [(kind, one)] = value.items()
        text = {"string": f'"{one}"', "bool": str(one).lower(), "version": f'semver("{one}")'}.get(
            kind, str(one)
        )
        if kind == "version":
            then = self.rng.choice(
                (f"compareTo({text}) >= 0", f"isLessThan({text})", f"compareTo({text}) == 0")
            )
            guard = "" if self.chance(0.2) else f'"{name}" in {of} && '
            return f"{guard}{of}.{name}.{then}"
        operator = self.rng.choice(("==", "==", "!="))
        match self.weighted(bare=18, guarded=50, optional=32):
            case "bare":
                return f"{of}.{name} {operator} {text}"
            case "guarded":
                return f'"{name}" in {of} && {of}.{name} {operator} {text}'
        return f"{of}.?{name}.orValue({text}) {operator} {text}"

    def selectors(self, driver: _Driver | None, n: int) -> list[Object]:
        chosen = [driver] * n if driver else []
        return [{"cel": {"expression": self.expression(one)}} for one in chosen]

    def device_class(self, name: str) -> Object:
        driver = self.drivers_of[name] = self.a_driver()
        spec: Object = {}
        if driver and self.chance(0.85):
            spec["selectors"] = [{"cel": {"expression": f'device.driver == "{driver.name}"'}}]
        if more := self.selectors(driver, self.number(88, 11, 1)):
            spec["selectors"] = [*spec.get("selectors", ()), *more]
        if self.chance(0.4):
            spec["config"] = [self.opaque(f"{name}-{at}") for at in range(1 + self.number(75, 25))]
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "DeviceClass",
            "metadata": {"name": name},
            "spec": spec,
        }

    def opaque(self, value: str) -> Object:
        return {
            "opaque": {"driver": self.rng.choice(DRIVERS), "parameters": {"apiVersion": "v1", "for": value}}
        }

    # Claims.

    def claim(self, name: str, classes: Sequence[str]) -> Object:
        requests = [self.request(f"req-{at}", classes) for at in range(1 + self.number(68, 25, 7))]
        devices: Object = {"requests": requests}
        refs = [
            ref
            for one in requests
            for ref in (
                one["name"],
                *(f"{one['name']}/{sub['name']}" for sub in one.get("firstAvailable", ())),
            )
        ]
        if self.chance(0.28):
            devices["constraints"] = [self.constraint(refs, classes) for _ in range(1 + self.number(85, 15))]
        if self.chance(0.4):
            devices["config"] = [self.config(refs, at) for at in range(1 + self.number(60, 30, 10))]
        admin = any("adminAccess" in one.get("exactly", ()) for one in requests)
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": ADMIN_NAMESPACE if admin else "default"},
            "spec": {"devices": devices},
        }

    def request(self, name: str, classes: Sequence[str]) -> Object:
        if self.chance(0.2):
            subs = [{"name": f"sub-{at}", **self.asked(classes)} for at in range(1 + self.number(15, 55, 30))]
            return {"name": name, "firstAvailable": subs}
        exactly = self.asked(classes)
        if self.chance(0.08):
            exactly["adminAccess"] = True
        return {"name": name, "exactly": exactly}

    def asked(self, classes: Sequence[str]) -> Object:
        """What a request and a subrequest have in common."""
        named: Object = {"deviceClassName": self.rng.choice(classes)}
        if self.chance(0.003):
            named["deviceClassName"] = "class-gone"
        if self.chance(0.12):
            named["allocationMode"] = "All"
        else:
            count = 33 if self.chance(0.004) else 1 + self.number(76, 16, 6, 2)
            named |= {"allocationMode": "ExactCount", "count": count}
        driver = self.drivers_of.get(named["deviceClassName"]) if self.chance(0.92) else self.a_driver()
        if selectors := self.selectors(driver, self.number(82, 16, 2)):
            named["selectors"] = selectors
        if self.chance(0.35):
            named["tolerations"] = [self.toleration() for _ in range(1 + self.number(70, 30))]
        if driver and driver.units and self.chance(0.28):
            n_named = self.rng.randint(1, len(driver.units))
            units = self.rng.sample(list(driver.units.items()), n_named)
            named["capacity"] = {"requests": {one: self.quantity(unit) for one, unit in units}}
        return named

    def quantity(self, unit: str) -> str:
        if self.chance(0.02):
            return self.rng.choice(("9223372036854775807", "1n", "0", "100P", "20E", "-1"))
        return amount(self.rng.choice((1, 1, 2, 2, 3, 4, 5, 7, 10)), unit)

    def toleration(self) -> Object:
        exists = self.chance(0.6)
        toleration: Object = {"operator": "Exists" if exists else "Equal"}
        if self.chance(0.7):
            toleration["key"] = self.rng.choice(_TAINTED)
        if not exists and self.chance(0.8):
            toleration["value"] = self.rng.choice(("v1", "v2"))
        if self.chance(0.5):
            toleration["effect"] = self.rng.choice(_EFFECTS)
        return toleration

    def constraint(self, refs: Sequence[str], classes: Sequence[str]) -> Object:
        driver = self.drivers_of[self.rng.choice(classes)]
        names = [one if "/" in one else f"{driver.name}/{one}" for one in driver.attributes] if driver else []
        names = [one for one in names if not one.endswith("rack")] if self.chance(0.8) else names
        attribute = self.rng.choice(names or [f"{COMMON}/pcieRoot"])
        constraint: Object = {self.weighted(matchAttribute=65, distinctAttribute=35): attribute}
        if self.chance(0.45):
            constraint["requests"] = self.some(refs)
        return constraint

    def config(self, refs: Sequence[str], at: int) -> Object:
        config = self.opaque(f"claim-{at}")
        if self.chance(0.6):
            config["requests"] = self.some(refs)
        return config

    def some(self, refs: Sequence[str]) -> list[str]:
        return self.rng.sample(refs, self.rng.randint(1, len(refs)))

    # What others have.

    def allocated(self, class_name: str) -> list[Object]:
        """Claims that have been allocated: of devices that are published, and of some that are no longer."""
        used = self.rng.choice((0.0, 0.1, 0.2, 0.35))
        results = [
            result
            for driver in self.drivers
            for pool, device in driver.published
            if self.chance(used)
            for result in self.uses(driver, pool, device)
        ]
        if self.chance(0.15):
            driver = self.a_driver()
            name = driver.name if driver else DRIVERS[0]
            gone = {"driver": name, "pool": self.rng.choice(self.nodes), "device": "dev-99"}
            results.append(
                gone if self.chance(0.5) else {**gone, "shareID": self.share(), "device": "dev-98"}
            )
        claims: list[Object] = []
        while results:
            part = [results.pop() for _ in range(min(len(results), self.rng.randint(1, 3)))]
            claims.append(self.holder(f"held-{len(claims)}", class_name, part))
        return claims

    def uses(self, driver: _Driver, pool: str, device: Object) -> Iterator[Object]:
        """The results that speak of one device."""
        result = {"driver": driver.name, "pool": pool, "device": device["name"]}
        if self.chance(0.1):
            admin = {**result, "adminAccess": True}
            yield {**admin, "shareID": self.share()} if device.get("allowMultipleAllocations") else admin
            if self.chance(0.5):
                return
        # Now and then it was shareable then and is not now, or the reverse.
        if bool(device.get("allowMultipleAllocations")) != self.chance(0.05):
            for _ in range(self.rng.randint(1, 2)):
                consumed = {
                    name: amount(self.rng.randint(0, 4), driver.units[name])
                    for name in device.get("capacity", ())
                }
                shared = {**result, "shareID": self.share()}
                yield {**shared, "consumedCapacity": consumed} if consumed and self.chance(0.95) else shared
        else:
            yield result

    def share(self) -> str:
        digits = "".join(self.rng.choices("0123456789abcdef", k=12))
        return f"00000000-0000-4000-8000-{digits}"

    def holder(self, name: str, class_name: str, results: Sequence[Object]) -> Object:
        """The claim that has been allocated these."""
        requests, allocations = [], []
        for at, result in enumerate(results):
            exactly: Object = {"deviceClassName": class_name, "allocationMode": "ExactCount", "count": 1}
            if result.get("adminAccess"):
                exactly["adminAccess"] = True
            requests.append({"name": f"req-{at}", "exactly": exactly})
            allocations.append({"request": f"req-{at}", **result})
        admin = any(result.get("adminAccess") for result in results)
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": ADMIN_NAMESPACE if admin else "default"},
            "spec": {"devices": {"requests": requests}},
            "status": {"allocation": {"devices": {"results": allocations}}},
        }


def amount(number: int, unit: str) -> str:
    """So many of a unit, as the server writes it; of "m" each is 1.5."""
    if unit == "m":
        return f"{number * 1500}m" if number % 2 else str(number * 3 // 2)
    return f"{number}{unit}" if number else "0"


def _divided(quantity: str, share: int) -> str:
    """A part of a whole quantity such as 20Gi, at least 1 of its unit."""
    digits = quantity.rstrip(string.ascii_letters)
    return f"{max(int(digits) // share, 1)}{quantity[len(digits) :]}"
