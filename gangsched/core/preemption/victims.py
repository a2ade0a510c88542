"""Victims: which pods may be evicted for a unit of higher priority, which go together, and their cost.

Defines a set of victims: closed under the gangs' bonds, measured by Cost, checked against disruption budgets.
core.preemption.search chooses the set. Pure; nothing is changed here.

A gang with disruption mode "all" is evicted as a whole, one with "single" pod by pod. One without a mode
keeps its min_count or nothing: pods beyond min_count go one by one, and the first pod below it takes all the
rest along, because a gang with fewer running does no work. (A PodGroup of scheduling.k8s.io without a mode
means "single", by its API.) Gangs that start together stop together. Reservations of a gang that waits in
Permit are released with those of its whole set, and cost nothing; nor do pods that are terminating already.

Sources: kube-scheduler 1.37 `framework/preemption/preemption.go` (pickOneNodeForPreemption), `util.go`
(MoreImportantVictim, FilterVictimsWithPDBViolation); scheduling.k8s.io/v1beta1, DisruptionMode.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType

from gangsched.core.cache.view.pods import PodQueries
from gangsched.core.framework.eviction_rule import EvictionRule, TakesSomeLast
from gangsched.core.framework.supports import serves
from gangsched.core.preemption.costs import OFFSET, Chosen, Cost, DisruptionBudget, Level
from gangsched.core.types.group import Group, GroupState, MemberState, PodInfo
from gangsched.core.types.states import ENDED
from gangsched.model.pod_group import ALL, SINGLE


class _Bond:
    """Pods of gangs that stop together once one of the gangs loses more than it can spare, on top of those
    that go anyway."""

    __slots__ = ("level", "pods", "spare")

    def __init__(self, pods: dict[str, PodInfo], spare: dict[int, int]) -> None:
        self.level: Level | None = None
        self.pods = pods
        self.spare = spare


class Victims:
    """All pods that may be evicted for one unit, by node row. n_binding: number of pods being bound."""

    def __init__(
        self,
        view: PodQueries,
        rows: Iterable[int],
        *,
        priority: int,
        siblings: Callable[[Group], Mapping[str, Group]],
        spared: Collection[str] = (),
        going: Collection[str] = (),
        rule: EvictionRule | None = None,
    ) -> None:
        """priority: the unit's; victims have a lower one, unless a rule decides otherwise. spared: UIDs that
        must not be chosen; going: UIDs of pods already evicted for other units."""
        self._priority = priority
        self._rule = rule
        self._siblings = siblings
        self._spared = spared
        self._going = going
        self._bonds: dict[tuple[int, MemberState], _Bond | None] = {}
        """By gang and member state: a gang's bound pods and its pods reserved later go separately."""
        self._bond_of: dict[str, _Bond] = {}
        self._budgets: Sequence[DisruptionBudget] = ()
        self.guarded: Collection[str] = ()
        """UIDs of pods that violate a budget whichever other pods are evicted."""
        self.last: set[str] = set()
        """UIDs of pods that the rule takes only if all others are not enough."""
        self._goes_last = rule.goes_last if rule is not None and serves(rule, TakesSomeLast) else None
        self.n_binding = 0
        self.on_row: dict[int, list[PodInfo]] = {}
        for row in rows:
            here = [info for info in view.pods_on(row) if self._may_go(info)]
            if here:
                self.on_row[row] = here
                self._mark_last(here)

    def set_budgets(self, budgets: Sequence[DisruptionBudget]) -> None:
        """Sets the disruption budgets that costs refer to from now on."""
        self._budgets = budgets
        self.guarded = {uid for budget in budgets if budget.allowed < 1 for uid in budget.uids}

    @property
    def are_independent(self) -> bool:
        """Whether a pod's cost does not depend on which other pods are evicted."""
        return not self._bond_of and all(budget.allowed < 1 for budget in self._budgets)

    def all(self) -> Iterator[PodInfo]:
        """Yields all possible victims on the requested rows."""
        return (info for here in self.on_row.values() for info in here)

    def with_their_gangs(self) -> Iterator[PodInfo]:
        """As `everybody`, then all pods that would have to go with one of them, on any node; some twice."""
        yield from self.all()
        for bond in {id(bond): bond for bond in self._bond_of.values()}.values():
            yield from bond.pods.values()

    def _mark_last(self, infos: Iterable[PodInfo]) -> None:
        if self._goes_last is not None:
            self.last.update(info.uid for info in infos if self._goes_last(info))

    # -- eligibility -------------------------------------------------------------------------------------

    def _may_go(self, info: PodInfo) -> bool:
        if info.uid in self._spared or not self._is_subject(info):
            return False
        group = info.group
        if group is None:
            return True
        if info.state is MemberState.ASSUMED and group.state is not GroupState.WAITING:
            self.n_binding += 1
            return False
        if info.state is MemberState.BOUND and not stays_whole(group):
            return True
        key = (id(group), info.state)
        if key not in self._bonds:
            self._bond(group, info.state)
        return self._bonds[key] is not None

    def _is_subject(self, info: PodInfo) -> bool:
        is_lower = priority_of(info) < self._priority
        return is_lower if self._rule is None else self._rule.may_take(info, is_lower=is_lower)

    def _bond(self, group: Group, state: MemberState) -> None:
        """Records what goes with the group's pods; None: one of them may not be evicted, so none may."""
        gangs = [group]
        for _, other in sorted(self._siblings(group).items()):
            if state is MemberState.ASSUMED or (stays_whole(other) and not _has_ended(other)):
                gangs.append(other)
        pods: dict[str, PodInfo] = {}
        spare: dict[int, int] = {}
        may_go = True
        for gang in gangs:
            own = gang.in_state(state)
            pods |= {info.uid: info for info in own if not is_leaving(info)}
            spare[id(gang)] = 0 if state is MemberState.ASSUMED else spare_of(gang, own)
            spare[id(gang)] -= sum(info.uid in self._going for info in own if not is_leaving(info))
            binding = gang.n_assumed if gang.state is GroupState.BINDING else 0
            self.n_binding += binding
            may_go = may_go and not binding and (self._rule is not None or gang.priority < self._priority)
        may_go = may_go and self._spared_none(pods) and self._are_subject(pods, spare)
        bond = _Bond(pods, spare) if may_go else None
        for gang in gangs:
            self._bonds[id(gang), state] = bond
        if bond is not None:
            self._bond_of.update(dict.fromkeys(pods, bond))
            self._mark_last(pods.values())

    def _are_subject(self, pods: Chosen, spare: Mapping[int, int]) -> bool:
        """Whether the rule lets all of them go, or no more of any gang than it can spare."""
        if self._rule is None:
            return True
        subject = [info for info in pods.values() if self._is_subject(info)]
        n_subject = dict.fromkeys(spare, 0)
        for info in subject:
            n_subject[id(info.group)] += info.uid not in self._going
        return len(subject) == len(pods) or all(n <= spare[gang] for gang, n in n_subject.items())

    def _spared_none(self, pods: Chosen) -> bool:
        return not any(uid in self._spared for uid in pods)

    # -- sets --------------------------------------------------------------------------------------------

    def closure(self, chosen: Chosen) -> dict[str, PodInfo]:
        """Returns the set plus all pods that cannot stay when these go."""
        closed = dict(chosen)
        left: dict[int, tuple[_Bond, dict[int, int]]] = {}
        for uid, info in chosen.items():
            bond = self._bond_of.get(uid)
            if bond is not None:
                if id(bond) not in left:
                    left[id(bond)] = bond, dict(bond.spare)
                left[id(bond)][1][id(info.group)] -= uid not in self._going
        for bond, spare in left.values():
            if any(n < 0 for n in spare.values()):
                closed |= bond.pods
        return closed

    def accepts(self, chosen: Chosen) -> bool:
        """Whether the rule lets these go together."""
        return self._rule is None or not self._rule.refuses(list(chosen.values()))

    def allowed(self, wanted: Chosen, beside: Chosen) -> dict[str, PodInfo]:
        """Returns as much of a closed set as the rule lets go with `beside`, the least important first."""
        found: dict[str, PodInfo] = {}
        for part in reversed(self.parts(wanted)):
            more = self.closure({**beside, **found, **part})
            if self.accepts(more):
                found = {uid: info for uid, info in more.items() if uid not in beside}
        return found

    def inseparable(self, info: PodInfo) -> dict[str, PodInfo]:
        """Returns the pod and all pods that cannot stay without it."""
        return self.closure({info.uid: info})

    def inseparable_sets(self, infos: Iterable[PodInfo]) -> Iterator[dict[str, PodInfo]]:
        """Yields each pod's atom; only one for all pods of a gang that goes as a whole."""
        seen: set[tuple[int, int]] = set()
        for info in infos:
            key = id(self._bond_of.get(info.uid)), id(info.group)
            if key not in seen or info.uid in self._going:
                atom = self.inseparable(info)
                yield atom
                if len(atom) > 1:
                    seen.add(key)

    def level(self, info: PodInfo) -> Level:
        """Lower bound of the pod's cost: whether it goes last, whether it violates a budget, and the highest
        priority."""
        bond = self._bond_of.get(info.uid)
        if bond is None:
            return info.uid in self.last, info.uid in self.guarded, priority_of(info)
        if bond.level is None:
            bond.level = self.cost(bond.pods).level
        is_spare = min(bond.spare.values()) >= 0 and bond.spare[id(info.group)] > 0
        return self.cost({info.uid: info}).level if is_spare else bond.level

    def parts(self, chosen: Chosen, beside: Chosen = MappingProxyType({})) -> list[dict[str, PodInfo]]:
        """Splits a closed set into pieces that can be spared one by one, the most important first. beside:
        pods that go already; what is left of a gang that goes with them is one piece."""
        found: list[dict[str, PodInfo]] = []
        seen: dict[str, None] = {}
        whole: dict[int, bool] = {}
        for uid, info in chosen.items():
            if uid not in seen:
                bond = self._bond_of.get(uid)
                part = {uid: info}
                if bond is not None:
                    if id(bond) not in whole:
                        whole[id(bond)] = all(other in chosen or other in beside for other in bond.pods)
                    if whole[id(bond)]:
                        part = {other: one for other, one in bond.pods.items() if other in chosen}
                seen |= dict.fromkeys(part)
                found.append(part)
        violating = self.violating(chosen)
        last = self.last

        def place(part: Chosen) -> tuple[object, ...]:
            return last.isdisjoint(part), violating.isdisjoint(part), _unimportance(part)

        return sorted(found, key=place)

    def needed(
        self, victims: dict[str, PodInfo], row: int, beside: Chosen, suffice: Callable[[Chosen], bool]
    ) -> dict[str, PodInfo]:
        """Returns which of these victims, which suffice for some pods on the node, have to go; others are
        spared, the most important first. beside: pods that go already."""
        for part in self.parts(victims, beside):
            fewer = {uid: info for uid, info in victims.items() if uid not in part}
            fewer = self._more(fewer, beside)
            if len(fewer) == len(victims):
                continue
            if suffice(fewer):
                victims = fewer
            elif len(part) > 1:
                few = self._more(self._fewest(part, row, fewer, suffice), beside)
                victims = few if len(few) < len(victims) else victims
        return victims

    def _fewest(
        self, part: Chosen, row: int, others: Chosen, suffice: Callable[[Chosen], bool]
    ) -> dict[str, PodInfo]:
        """Returns the others and those of a gang's pods that must go from the node, or all of them: the gang
        may be able to spare these. Its large pods go rather than small ones, as fewer may then be enough."""
        found = {**others, **part}
        if not any(self._bond_of[uid].spare[id(info.group)] > 0 for uid, info in part.items()):
            return found
        here = {uid: info for uid, info in part.items() if info.row == row}
        if len(here) < len(part) and not suffice({**others, **here}):
            return found
        found = {**others, **here}
        for uid, _ in sorted(here.items(), key=lambda one: (sum(one[1].template.amounts), started_s(one[1]))):
            fewer = {other: info for other, info in found.items() if other != uid}
            if suffice(fewer):
                found = fewer
        return found

    def _more(self, chosen: Chosen, beside: Chosen) -> dict[str, PodInfo]:
        """Returns the set, closed together with the pods that go already, but without those."""
        closed = self.closure({**beside, **chosen})
        return {uid: info for uid, info in closed.items() if uid not in beside}

    def violating(self, chosen: Chosen) -> set[str]:
        """The pods of the set that violate a disruption budget; the most important use up budgets first."""
        found: set[str] = set()
        if not self._budgets:
            return found
        allowed = [budget.allowed for budget in self._budgets]
        for info in sorted(chosen.values(), key=lambda info: _unimportance({info.uid: info})):
            for i, budget in enumerate(self._budgets):
                if info.uid in budget.uids and not is_free(info):
                    allowed[i] -= 1
                    if allowed[i] < 0:
                        found.add(info.uid)
        return found

    def cost(self, chosen: Chosen, *, n_violations: int | None = None) -> Cost:
        """Returns the cost of a closed set; n_violations: if known already. Source of the order:
        pickOneNodeForPreemption."""
        costly = [info for info in chosen.values() if not is_free(info)]
        if not costly:
            return Cost()
        priorities = [priority_of(info) for info in costly]
        highest = max(priorities)
        first_s = min(started_s(i) for i, own in zip(costly, priorities, strict=True) if own == highest)
        total = sum(priorities) + OFFSET * len(costly)
        if n_violations is None:
            n_violations = len(self.violating(chosen))
        n_last = sum(info.uid in self.last for info in costly) if self.last else 0
        return Cost(n_last, n_violations, highest, total, len(costly), -first_s)


def priority_of(info: PodInfo) -> int:
    """Returns the gang's priority for its members, else the pod's own."""
    return info.group.priority if info.group is not None else info.pod.spec.priority or 0


def may_preempt(group: Group, members: Iterable[PodInfo]) -> bool:
    """Whether pods may be evicted for these members: each of them allows it, and their group."""
    if group.definition is not None and not group.definition.preempts:
        return False
    return all(info.pod.spec.preemption_policy != "Never" for info in members)


def started_s(info: PodInfo) -> float:
    """Returns Unix seconds; a pod that has not started counts as the youngest."""
    time = info.pod.status.start_time
    return math.inf if time is None else time.timestamp()


def is_leaving(info: PodInfo) -> bool:
    """Whether the pod is being deleted: its room is freed anyway."""
    return info.pod.metadata.deletion_timestamp is not None


def is_free(info: PodInfo) -> bool:
    """Whether evicting it costs nothing: it is terminating, or only a reservation."""
    return info.state is MemberState.ASSUMED or is_leaving(info)


def _unimportance(part: Chosen) -> tuple[object, ...]:
    """Sort key, most important first: high priorities, gangs before pods, large gangs, long-running ones.

    Source: MoreImportantVictim. Ties: name.
    """
    infos = part.values()
    n = len(part)
    first_s = min(started_s(info) for info in infos)
    free = all(is_free(info) for info in infos)
    highest = max(priority_of(info) for info in infos)
    return (free, -highest, n == 1, -n, first_s, min((info.pod.key, info.uid) for info in infos))


def stays_whole(group: Group) -> bool:
    """Whether losing one pod too many means losing all; false for a lone pod or a "single" gang."""
    definition = group.definition
    return group.is_gang and definition is not None and definition.disruption_mode != SINGLE


def _has_ended(gang: Group) -> bool:
    """Whether none of its pods runs or waits to: no work is lost with gangs that started with it."""
    return sum(gang.counts[state] for state in ENDED) == len(gang.members)


def spare_of(gang: Group, bound: Sequence[PodInfo]) -> int:
    """Number of bound pods that a gang that stays whole can lose and still go on."""
    if gang.definition is not None and gang.definition.disruption_mode == ALL:
        return 0
    if gang.definition is not None and gang.definition.roles:
        return 0  # it is not computed which of its roles could spare one more pod
    staying = sum(not is_leaving(info) for info in bound) + gang.counts[MemberState.DONE]
    return max(0, staying - gang.min_count)
