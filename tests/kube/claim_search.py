"""Explores the model of claims: every state that can be reached, and whether each can come to rest.

The protocol itself is in tests/kube/claim_model.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import permutations, product
from operator import itemgetter
from typing import NamedTuple

from tests.kube.claim_model import Model, Scenario, State

UNSETTLED = "C: it stays as it is for ever"


class Explored(NamedTuple):
    """`fault`: what is broken, and `story`, a shortest way to it; both are empty if nothing is."""

    n_states: int
    fault: str = ""
    story: tuple[str, ...] = ()


class _Search:
    """Numbers states in the order of their coming; those that differ only in names are one."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._renamings = list(renamings(model))
        self._numbers: dict[State, int] = {}
        self.states: list[State] = []
        self.before: list[int] = []

    def one_of_its_names(self, state: State) -> State:
        """The first of those that it has, all of them without leaders that count no more."""
        first = state = self._model.without_idle(state)
        for renamed in self._renamings:
            first = min(first, renamed(state))
        return first

    def number(self, state: State, before: int) -> int:
        known = self._numbers.get(state)
        if known is not None:
            return known
        name = self.one_of_its_names(state)
        number = self._numbers.setdefault(name, len(self.states))
        if number == len(self.states):
            self.states.append(name)
            self.before.append(before)
        return number

    def story(self, number: int) -> tuple[str, ...]:
        """As it goes for one choice of names from the first state on."""
        chain = []
        while number > 0:
            chain.append(self.states[number])
            number = self.before[number]
        state, told = self._model.first(), []
        for name in reversed(chain):
            for _, what, then in self._model.steps(state):
                if self.one_of_its_names(then) == name:
                    told.append(what)
                    state = self._model.without_idle(then)
                    break
        return tuple(told)


def explore(scenario: Scenario, without: str = "", most: int = 5_000_000) -> Explored:
    """Breadth first, until a state is broken. Raises AssertionError beyond `most` states."""
    model = Model(scenario, without)
    search = _Search(model)
    search.number(model.first(), 0)
    states = search.states
    may_follow: list[tuple[int, ...]] = []
    for at, state in enumerate(states):  # grows as it goes
        counted_on = []
        for may_be_counted_on, _, then in model.steps(state):
            n = len(states)
            number = search.number(then, at)
            if number == n and (fault := model.fault(states[n])):
                return Explored(len(states), fault, search.story(n))
            if may_be_counted_on:
                counted_on.append(number)
        may_follow.append(tuple(counted_on))
        assert at < most, f"more than {most:,} states"
    stuck = _first_stuck([model.is_settled(state) for state in states], may_follow)
    return Explored(len(states)) if stuck is None else Explored(len(states), UNSETTLED, search.story(stuck))


def _first_stuck(is_good: list[bool], may_follow: Sequence[Sequence[int]]) -> int | None:
    """The first state from which no good one can be reached."""
    left = [at for at, good in enumerate(is_good) if not good]
    n_left = -1
    while len(left) != n_left:
        n_left = len(left)
        for at in reversed(left):
            is_good[at] = any(is_good[then] for then in may_follow[at])
        left = [at for at in left if not is_good[at]]
    return left[0] if left else None


def renamings(model: Model) -> Iterator[Callable[[State], State]]:
    """What gives pods, claims, devices and gangs other names, in a way that changes nothing else."""
    scenario = model.scenario
    uses = list(zip(model.pod_of, model.claim_of, strict=True))
    for pods, claims in product(permutations(model.pods), permutations(model.claims)):
        renamed = [(pods[pod], claims[claim]) for pod, claim in uses]
        gangs = _same(model.gang_of, [model.gang_of[pod] for pod in pods])
        devices = _same(scenario.devices, [scenario.devices[claim] for claim in claims])
        if gangs is None or devices is None or set(renamed) != set(uses):
            continue
        moves_0 = (scenario.has_stranger and claims[0] != 0) or (scenario.has_rival and devices[0] != 0)
        if moves_0 or {claims[claim] for claim in scenario.for_group} != set(scenario.for_group):
            continue
        by_pod, by_use = [model.pod, model.listed_pod], [model.entry]
        by_claim = [model.allocation, model.finalizer, model.listed_claim]
        for me in model.leaders:
            by_pod += [me.pod, me.bump_pod, me.bind]
            by_claim += [me.claim, me.bump_claim]
            by_use += [me.use, me.write]
        places = list(range(model.size))
        _move(places, by_pod, pods)
        _move(places, by_claim, claims)
        _move(places, by_use, [uses.index(use) for use in renamed])
        if places != sorted(places):
            yield itemgetter(*places)


def _same(ones: Iterable[int], others: Iterable[int]) -> dict[int, int] | None:
    """The renaming that makes the others of the ones; None: there is none."""
    renaming: dict[int, int] = {}
    for one, other in zip(ones, others, strict=True):
        if renaming.setdefault(one, other) != other:
            return None
    return renaming if len(set(renaming.values())) == len(renaming) else None


def _move(places: list[int], fields: Iterable[Sequence[int]], names: Sequence[int]) -> None:
    for field in fields:
        for one, other in enumerate(names):
            places[field[other]] = field[one]
