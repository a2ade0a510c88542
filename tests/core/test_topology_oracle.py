"""Gangs with topology constraints against brute force, on small random clusters.

A gang is placed exactly where some choice of domain and nodes exists; it is in one domain of what it requires
and in as few of what it prefers as there can be; victims are of one domain and the cheapest set there is.
The brute force walks all assignments of members to nodes, and knows nothing of arrays, racks or searches.
"""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain, combinations
from typing import NamedTuple

import msgspec
import pytest
from msgspec.structs import replace

from gangsched.config import Settings
from gangsched.lab.sim.objects import make_pod
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY
from tests.core.topologies import BLOCK, RACK, apart, node, within
from tests.support.long import all_but
from tests.support.scenario import Cluster, with_annotations

N_BLOCKS, N_CASES = 8, 25
_FORMS = (
    ((RACK, True),),
    ((BLOCK, True), (RACK, False)),
    ((BLOCK, True), (RACK, True)),
    ((RACK, False),),
    ((BLOCK, False), (RACK, False)),
)
_OFFSET = 2**31

Form = tuple[tuple[str, bool], ...]
Labels = Mapping[str, str]


class Ask(NamedTuple):
    """One gang: what each member asks for, how many are needed, its topology, one a node or not."""

    name: str
    sizes: tuple[int, ...]
    needed: int
    form: Form
    apart: bool

    def pods(self, *, priority: int = 0, siblings: Sequence[str] = ()) -> list[Pod]:
        made = [
            make_pod(f"{self.name}-{i}", group=self.name, min_members=self.needed, gpus=n, priority=priority)
            for i, n in enumerate(self.sizes)
        ]
        text = ", ".join(f"{'required' if must else 'preferred'}: {key}" for key, must in self.form)
        made = within(text, apart(made) if self.apart else made)
        own = {GROUPS_KEY: msgspec.json.encode(list(siblings)).decode()} if siblings else {}
        return with_annotations(made, own)


class Scene:
    """A cluster as plain numbers, and the same one told to a scheduler."""

    def __init__(self, rng: random.Random, *, n_nodes: int) -> None:
        self.labels: list[Labels] = []
        self.room: list[int] = []
        self.cluster = Cluster(Settings(search_placements=100_000, topology_key=RACK))
        for i in range(n_nodes):
            block = rng.choice("pq")
            rack = block + rng.choice("12") if rng.random() < 0.8 else rng.choice(("x", "y"))
            own = {"rack": rack} if rng.random() < 0.9 else {}
            own |= {"block": block} if rng.random() < 0.9 else {}
            room = rng.choice((1, 2, 3, 4))
            made = node(f"n{i}", gpus=room, **own)
            self.cluster.node(made)
            self.labels.append(made.metadata.labels or {})
            self.room.append(room)

    def domains(self, form: Form, pinned: Iterable[int] = ()) -> Iterator[list[int]]:
        """The nodes of each domain that members on `pinned` leave to choose from."""
        keys = [key for key, must in form if must]
        found: dict[tuple[str, ...], list[int]] = {}
        for row, labels in enumerate(self.labels):
            if all(key in labels for key in keys):
                found.setdefault(tuple(labels[key] for key in keys), []).append(row)
        yield from (rows for rows in found.values() if set(pinned) <= set(rows))

    def row(self, pod: Pod) -> int:
        return int(pod.spec.node_name[1:])

    def rows_of(self, name: str) -> list[int]:
        pods = self.cluster.pods.values()
        return [self.row(p) for p in pods if p.metadata.name.startswith(f"{name}-") and p.spec.node_name]


def fits(
    asks: Sequence[tuple[Ask, Sequence[int]]], room: Sequence[int], taken_by: frozenset[int] = frozenset()
) -> bool:
    """Whether each gang's needed members have room on its rows; `taken_by`: rows where one stands that others
    keep away from."""
    if not asks:
        return True
    (ask, rows), rest = asks[0], asks[1:]

    def place(at: int, left: list[int], n: int, on: frozenset[int]) -> bool:
        if n >= ask.needed and fits(rest, left, on):
            return True
        if at == len(ask.sizes):
            return False
        for row in rows:
            if left[row] >= ask.sizes[at] and not (ask.apart and row in on):
                left[row] -= ask.sizes[at]
                done = place(at + 1, left, n + 1, on | {row} if ask.apart else on)
                left[row] += ask.sizes[at]
                if done:
                    return True
        return place(at + 1, left, n, on)

    return place(0, list(room), 0, taken_by)


def exists(scene: Scene, asks: Sequence[Ask], room: Sequence[int], pinned: Iterable[int] = ()) -> bool:
    def choose(left: Sequence[Ask], chosen: list[tuple[Ask, Sequence[int]]]) -> bool:
        if not left:
            return fits(chosen, room)
        return any(
            choose(left[1:], [*chosen, (left[0], rows)]) for rows in scene.domains(left[0].form, pinned)
        )

    return choose(asks, [])


def draw(rng: random.Random, name: str, *, most: int = 5, forms: Sequence[Form] = _FORMS) -> Ask:
    sizes = tuple(rng.choice((1, 1, 2, 3)) for _ in range(rng.randint(1, most)))
    if rng.random() < 0.6:
        sizes = (sizes[0],) * len(sizes)
    needed = len(sizes) if rng.random() < 0.7 else rng.randint(1, len(sizes))
    return Ask(name, sizes, needed, rng.choice(forms), rng.random() < 0.25)


def held(scene: Scene, ask: Ask) -> None:
    """What its members have in common, where they are now."""
    rows = scene.rows_of(ask.name)
    for key, must in ask.form:
        if must:
            values = {scene.labels[row].get(key) for row in rows}
            assert len(values) <= 1, f"{ask} is in {values}"
            assert None not in values, f"{ask} is on a node without {key}"


def fewest(scene: Scene, ask: Ask, room: Sequence[int]) -> int:
    """Of how many values of the narrowest preferred label the whole gang can do with; 0: with none."""
    key = [key for key, must in ask.form if not must][-1]
    whole = ask._replace(needed=len(ask.sizes))
    best = 0
    for rows in scene.domains(ask.form):
        values = sorted({scene.labels[row][key] for row in rows if key in scene.labels[row]})
        for n in range(1, len(values) + 1):
            if any(
                fits([(whole, [row for row in rows if scene.labels[row].get(key) in some])], room)
                for some in combinations(values, n)
            ):
                best = min(best or n, n)
                break
    return best


@pytest.mark.parametrize("block", all_but(1, range(N_BLOCKS)))
def test_a_gang_is_placed_exactly_where_a_domain_has_room(block: int) -> None:
    for seed in range(block * N_CASES, (block + 1) * N_CASES):
        rng = random.Random(f"{seed}-topology")
        scene = Scene(rng, n_nodes=rng.randint(2, 7))
        ask = draw(rng, "g")
        room = list(scene.room)
        scene.cluster.submit(ask.pods()).run()
        rows = scene.rows_of("g")
        told = f"seed {seed}: {ask} on {scene.room} {scene.labels}: {rows}"
        assert (len(rows) >= ask.needed) == exists(scene, [ask], room), told
        held(scene, ask)
        preferred = [key for key, must in ask.form if not must]
        if preferred and len(rows) == len(ask.sizes) and len(set(ask.sizes)) == 1 and not ask.apart:
            least = fewest(scene, ask, room)
            values = {scene.labels[row].get(preferred[-1]) for row in rows}
            if len(preferred) == 1 and least:
                assert len(values) == least, told
            elif least == 1:
                assert len(values) == 1, told


@pytest.mark.parametrize("block", all_but(1, range(N_BLOCKS // 2)))
def test_a_gang_that_grows_is_placed_exactly_where_its_domain_has_room(block: int) -> None:
    for seed in range(block * N_CASES, (block + 1) * N_CASES):
        rng = random.Random(f"{seed}-growing")
        scene = Scene(rng, n_nodes=rng.randint(2, 6))
        ask = draw(rng, "g", most=5)
        n_first = rng.randint(1, len(ask.sizes))
        ask = ask._replace(needed=n_first)
        pods = ask.pods()
        scene.cluster.submit(pods[:n_first]).run()
        first = scene.rows_of("g")
        if len(first) < n_first:
            continue
        room = list(scene.room)
        for row, size in zip(first, ask.sizes, strict=False):
            room[row] -= size
        scene.cluster.submit(pods[n_first:]).run()
        held(scene, ask)
        rows, rest = scene.rows_of("g"), ask.sizes[n_first:]
        if rest:
            one_more = ask._replace(sizes=rest, needed=1)
            on = frozenset(first) if ask.apart else frozenset()
            may = any(fits([(one_more, own)], room, on) for own in scene.domains(ask.form, first))
            assert (len(rows) > n_first) == may, f"seed {seed}: {ask} {n_first} first, {rows} on {scene.room}"


@pytest.mark.parametrize("block", all_but(1, range(N_BLOCKS // 2)))
def test_gangs_that_start_together_are_placed_exactly_where_a_choice_exists(block: int) -> None:
    for seed in range(block * N_CASES, (block + 1) * N_CASES):
        rng = random.Random(f"{seed}-together")
        scene = Scene(rng, n_nodes=rng.randint(2, 5))
        asks = [draw(rng, name, most=3)._replace(apart=False) for name in ("g", "h")]
        room = list(scene.room)
        for ask in asks:
            scene.cluster.submit(ask.pods(siblings=("g", "h")))
        scene.cluster.run()
        placed = [len(scene.rows_of(ask.name)) >= ask.needed for ask in asks]
        told = f"seed {seed}: {asks} on {scene.room} {scene.labels}"
        assert len(set(placed)) == 1, told
        assert placed[0] == exists(scene, asks, room), told
        for ask in asks:
            held(scene, ask)


class Old(NamedTuple):
    name: str
    row: int
    size: int
    priority: int


def cost(some: Iterable[Old]) -> tuple[int, int]:
    """The highest priority, then the sum of all, each pod costing something."""
    some = list(some)
    return max((o.priority for o in some), default=-_OFFSET), sum(o.priority + _OFFSET for o in some)


@pytest.mark.parametrize("block", all_but(1, range(N_BLOCKS // 2)))
def test_victims_are_the_cheapest_of_all_domains(block: int) -> None:
    for seed in range(block * N_CASES, (block + 1) * N_CASES):
        rng = random.Random(f"{seed}-victims")
        scene = Scene(rng, n_nodes=rng.randint(2, 5))
        c, room, old = scene.cluster, list(scene.room), list[Old]()
        for row in range(len(room)):
            while room[row] and len(old) < 7 and rng.random() < 0.9:
                size = rng.randint(1, room[row])
                old.append(Old(f"old-{len(old)}", row, size, rng.choice((0, 1, 2, 50))))
                room[row] -= size
        for one in old:
            pod = make_pod(one.name, gpus=one.size, priority=one.priority, scheduler="other")
            c.submit(replace(pod, spec=replace(pod.spec, node_name=f"n{one.row}")))
        ask = draw(rng, "g", most=3, forms=_FORMS[:3])._replace(apart=False)
        ask = ask._replace(needed=len(ask.sizes))
        may_go = [one for one in old if one.priority < 10]
        best: tuple[int, int] | None = None
        for some in chain.from_iterable(combinations(may_go, n) for n in range(len(may_go) + 1)):
            left = list(room)
            for one in some:
                left[one.row] += one.size
            if (best is None or cost(some) < best) and exists(scene, [ask], left):
                best = cost(some)
        c.evictions = "slow"
        c.submit(ask.pods(priority=10)).run()
        gone = [one for one in old if one.name in c.taken()]
        told = f"seed {seed}: {ask} on {scene.room} {scene.labels} took {gone} of {old}"
        if gone:
            c.delete(*(one.name for one in gone)).run()
        assert (len(scene.rows_of("g")) == len(ask.sizes)) == (best is not None), told
        held(scene, ask)
        if best is not None:
            assert cost(gone) == best, told
