"""Finds a day's gangs; makes days without a gang, with more nodes, and shaken days. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from random import Random

import msgspec
from msgspec.structs import replace

from gangsched.errors import ConfigError
from gangsched.lab.counterfactual.day import Day, Life, OtherEvent
from gangsched.lab.counterfactual.model import Outcome
from gangsched.model import events as ev
from gangsched.model.objects import Node
from gangsched.reading.strict import nearest
from gangsched.whatif.trial import HOSTNAME

MOST_SHAKEN_S = 30.0
SHAKEN_BY_SHARE = 0.05
MAX_ADDED = 10_000
_OBJECTS = (ev.PodGroupAdded, ev.PodGroupUpdated, ev.OwnerPut)
# Taints that the node controller sets while a node has problems.
_TROUBLE = "node.kubernetes.io/"


class Gang(msgspec.Struct, frozen=True):
    """Pods that start together, or a lone pod. uids: of the original pods, without replacements."""

    name: str
    uids: tuple[str, ...]
    came_s: float

    @property
    def n_pods(self) -> int:
        return len(self.uids)


def gangs_of(day: Day, outcome: Outcome) -> list[Gang]:
    """Returns the gangs in the recording, in order of arrival.

    A name used again after all of its pods have ended is another gang, numbered: `train#2`.
    """
    found: list[Gang] = []
    open_: dict[str, list[Life]] = {}
    n_of_name: dict[str, int] = {}
    for uid, course in outcome.courses.items():
        life = day.lives[uid]
        if life.was_bound:
            continue
        name = course.group or life.pod.key
        members = open_.setdefault(name, [])
        if members and all(_is_over(one, life.came_s) for one in members):
            found.append(_gang(name, n_of_name, members))
            members.clear()
        members.append(life)
    found += [_gang(name, n_of_name, members) for name, members in open_.items()]
    return sorted(found, key=lambda one: (one.came_s, one.name))


def _is_over(life: Life, at_s: float) -> bool:
    over_s = life.gone_s if life.ended_s is None else life.ended_s
    return over_s is not None and over_s <= at_s


def _gang(name: str, n_of_name: dict[str, int], members: Sequence[Life]) -> Gang:
    n = n_of_name[name] = n_of_name.get(name, 0) + 1
    full = name if n == 1 else f"{name}#{n}"
    return Gang(full, tuple(one.uid for one in members), min(one.came_s for one in members))


def without(day: Day, outcome: Outcome, names: Sequence[str]) -> Day:
    """Returns the day without these gangs or pods. Raises: ConfigError (nothing has that name)."""
    taken: set[str] = set()
    for name in names:
        full = name if "/" in name else f"default/{name}"
        uids = {uid for uid, one in outcome.courses.items() if full in (one.group, day.lives[uid].pod.key)}
        if not uids:
            known = {one.group for one in outcome.courses.values() if one.group}
            problem = f"{full}: no gang and no pod of this name is in the recording{nearest(full, known)}"
            raise ConfigError(problem, path="--without")
        taken |= uids
    lives = {uid: life for uid, life in day.lives.items() if _head(day.lives, life).uid not in taken}
    return replace(day, lives=lives)


def _head(lives: Mapping[str, Life], life: Life) -> Life:
    """Returns the original pod that this one replaces, directly or indirectly."""
    while life.replaces:
        life = lives[life.replaces]
    return life


def with_nodes(day: Day, n: int, like: str) -> Day:
    """Adds empty copies of a node from the beginning. Raises: ConfigError."""
    nodes: dict[str, Node] = {}
    for other in day.others:
        if isinstance(other.event, ev.NodeAdded | ev.NodeUpdated):
            nodes.setdefault(other.event.node.metadata.name, other.event.node)
    if like not in nodes:
        raise ConfigError(
            f"{like}: no node of this name is in the recording{nearest(like, nodes)}", path="--like"
        )
    model, added = nodes[like], []
    taints = [one for one in model.spec.taints or () if not one.key.startswith(_TROUBLE)]
    spec = replace(model.spec, unschedulable=False, taints=taints or None)
    for k in range(n):
        name = f"{like}-added-{k + 1}"
        labels = {**(model.metadata.labels or {}), HOSTNAME: name}
        meta = replace(model.metadata, name=name, uid=f"counterfactual-{name}", labels=labels)
        added.append(OtherEvent(0.0, ev.NodeAdded(replace(model, metadata=meta, spec=spec))))
    return replace(day, others=[*added, *day.others])


def shaken_by_s(day: Day) -> float:
    """Returns by how much earlier or later a gang may come: less on short days."""
    return min(MOST_SHAKEN_S, day.length_s / 100)


def shaken(day: Day, gangs: Sequence[Gang], seed: int) -> Day:
    """Makes each gang come a little earlier or later, and run a little longer or shorter.

    One order of arrival proves little: Tsafrir, Ouaknine, Feitelson, "Reducing performance evaluation
    sensitivity and variability by input shaking" (MASCOTS 2007). API objects that gangs need come earlier by
    the largest possible shift.
    """
    rng = Random(f"{seed}-counterfactual")
    most_s = shaken_by_s(day)
    drawn: dict[str, tuple[float, float]] = {}
    for gang in gangs:
        by = rng.uniform(-most_s, most_s), rng.uniform(1 - SHAKEN_BY_SHARE, 1 + SHAKEN_BY_SHARE)
        drawn |= dict.fromkeys(gang.uids, by)
    lives = {}
    for uid, life in day.lives.items():
        drawn_for_it = drawn.get(_head(day.lives, life).uid)
        lives[uid] = life if drawn_for_it is None else _shaken(life, *drawn_for_it)
    others = [
        replace(one, at_s=max(one.at_s - most_s, 0.0)) if isinstance(one.event, _OBJECTS) else one
        for one in day.others
    ]
    return replace(day, lives=lives, others=sorted(others, key=lambda one: one.at_s))


def _shaken(life: Life, by_s: float, factor: float) -> Life:
    def moved(at_s: float | None) -> float | None:
        return None if at_s is None else max(at_s + by_s, 0.0)

    if life.bound_s is None:
        return replace(life, came_s=max(life.came_s + by_s, 0.0), gone_s=moved(life.gone_s))
    bound_s = max(life.bound_s + by_s, 0.0)
    ended_s, gone_s = life.ended_s, life.gone_s
    if life.ended_s is not None:
        ended_s = bound_s + (life.ended_s - life.bound_s) * factor
        gone_s = None if life.gone_s is None else ended_s + max(life.gone_s - life.ended_s, 0.0)
    return replace(life, came_s=max(life.came_s + by_s, 0.0), bound_s=bound_s, ended_s=ended_s, gone_s=gone_s)


def served(day: Day, names: Collection[str]) -> int:
    """Counts the pods that name one of these schedulers."""
    return sum(life.pod.spec.scheduler_name in names for life in day.lives.values())
