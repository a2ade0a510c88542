"""Domains: the racks (zones, blocks) that a group may go to, the best first; and why it fits in none.

A domain is the nodes with the same value of every label that the group requires; nodes without one of them
are in none. Domains are ordered by: room for most members, fewest domains of the labels that the group
prefers, fewest nodes, the pods' preferences, least room left over, name. Domains that cannot hold the group
are left out, by sums over arrays and by upper bounds of plugins that see pods. Members that are placed
already, or run, fix the domain for the rest.

Of preferred labels the narrowest is tried first (one domain of it), then the wider ones, then as few domains
as possible; if that fails too, the preference is dropped. Called by core.cycle.domains.topology.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import msgspec
import numpy as np
from msgspec.structs import replace

from gangsched.core.cache.trial import Trial
from gangsched.core.cache.view.nodes import NodeQueries
from gangsched.core.cycle.choosing.packing import fewest
from gangsched.core.cycle.choosing.preferred import worth
from gangsched.core.cycle.near_names import unknown_label
from gangsched.core.cycle.orders.orders import in_turns
from gangsched.core.cycle.shared_room import TemplateMembers, asked_together, shared_room
from gangsched.core.framework.plan import TOPOLOGY, FitError, Plan, of_member
from gangsched.core.framework.profile import Demand
from gangsched.core.types.arrays import BoolArray, FloatArray, IntArray
from gangsched.core.types.group import NO_ROW, MemberState, PodInfo
from gangsched.core.types.templates.pod_template import PodTemplate
from gangsched.core.why import OfGang, Why, without_gang
from gangsched.core.why.nodes import NearestDomain, proved_there
from gangsched.model.stated.topology import Topology
from gangsched.model.text.printable import sentence, several, shown

MAX_DOMAINS = 64
"""Domains to try if all have room and yet the group fits in none; each costs a cycle."""
# Domains of one preferred label that are tried.
_MAX_NARROW = 16
# Domains named in a reason.
_MAX_NAMED = 3
_HERE = (MemberState.BOUND, MemberState.ASSUMED)

_Run = Callable[[Sequence[Demand], int], Plan | FitError]
_Room = tuple[list[TemplateMembers], IntArray]
"""The members, and how many of them each node takes, int64[n_rows]."""


class Area(msgspec.Struct, frozen=True, gc=False):
    """Nodes that a group is tried on. mask: bool[n_rows], None: all; name: the domain's; is_whole: all of the
    domain, not only the preferred part of it."""

    mask: BoolArray | None
    name: str
    is_whole: bool


def topology_of(demand: Demand) -> Topology:
    """The labels that the group requires or prefers a domain of; () if it may go anywhere."""
    definition = demand.group.definition
    return () if definition is None else definition.topology


def domain_codes(view: NodeQueries, keys: Sequence[str], base: BoolArray) -> IntArray:
    """int64[n_rows]: one code for the nodes of `base` with the same values of all `keys`; -1: in none."""
    found = np.where(base, 0, -1).astype(np.int64)
    for n, key in enumerate(keys):
        codes = view.label(key)[0].astype(np.int64)
        if not n:
            found = np.where(base, codes, -1)
            continue
        is_in = (found >= 0) & (codes >= 0)
        both = found[is_in] * (int(codes.max(initial=0)) + 1) + codes[is_in]
        found = np.full(len(found), -1, dtype=np.int64)
        found[is_in] = np.unique(both, return_inverse=True)[1]
    return found


class Domains:
    """The domains that one group of a unit may go to, as the Trial is now. now: if given, domains where most
    members have room in its state come first.
    """

    def __init__(
        self, demand: Demand, unit: Sequence[Demand], trial: Trial, now: Trial | None = None
    ) -> None:
        self._demand = demand
        self._trial = trial
        topology = topology_of(demand)
        self.is_constrained = bool(topology)
        self.refusal: FitError | None = None
        """Why no domain suits the group, however much room there is."""
        self.n_answered = 0
        """Areas returned so far; n_left_out: domains left out because there are too many."""
        self.n_left_out = 0
        if not topology:
            return
        self._required = [level.key for level in topology if level.required]
        self._preferred = [level.key for level in topology if not level.required]
        self._what = " and ".join(self._required)
        self._texts: dict[str, list[str]] = {}
        self._unit_templates = [t for one in unit for t, _ in one.by_template().values()]
        self._kinds = self._kinds_of(trial, is_alone=len(unit) == 1)
        filtering = demand.profile.filtering
        self._amounts = shared_room(filtering, self._kinds, trial)
        """int64[n_rows]: how many members each node takes, of all templates."""
        self._now: _Room | None = None
        if now is not None:
            kinds = self._kinds_of(now, is_alone=False)
            self._now = kinds, shared_room(filtering, kinds, now)
        self._here = _placed(demand)
        base = trial.live if demand.within is None else trial.live & demand.within
        self._codes = self._domains(self._required, base)
        self._pin = self._pinned()

    @property
    def n_asks(self) -> int:
        """How often one try asks plugins: once per kind of member, once per member if they see pods."""
        if not self.is_constrained:
            return len(self._demand.members)
        sees_pods = self._demand.profile.filtering.sees_pods
        return sum(kind.n if kind.state is None or sees_pods(kind.state) else 1 for kind in self._kinds)

    # -- what there is ---------------------------------------------------------------------------------

    def _kinds_of(self, trial: Trial, *, is_alone: bool) -> list[TemplateMembers]:
        demand = self._demand
        found: list[TemplateMembers] = []
        for template, members in demand.by_template().values():
            state, status = demand.pre_filter(template, trial)
            n = len(members)
            if status.is_success:
                room = np.minimum(demand.profile.filtering.static_capacity(state, template, trial), n)
                found.append(TemplateMembers(template, n, state, room))
            elif is_alone:
                rejected = ((status.plugin, template),)
                why = of_member(members[0], status.why)
                self.refusal = FitError(demand.group, why, rejected, status.code)
            else:  # groups that are placed before may change PreFilter's answer
                found.append(TemplateMembers(template, n, None, np.where(trial.live, n, 0)))
        return found

    def _domains(self, keys: Sequence[str], base: BoolArray) -> IntArray:
        return domain_codes(self._trial, keys, base)

    def _pinned(self) -> int | None:
        """Returns the domain that members are in already; -1 if no other member may go there, None if they
        are in no domain. Records a refusal if they are not all in one."""
        if not self._required or not self._here:
            return None
        codes = self._domains(self._required, self._trial.live)
        by_domain: dict[int, PodInfo] = {}
        for info in self._here:
            by_domain.setdefault(int(codes[info.row]), info)
        if len(by_domain) == 1 and -1 not in by_domain:
            return int(self._codes[self._here[0].row])
        where = [
            f"{info.pod.metadata.name} is in {self._name(info.row) if code >= 0 else 'none'}"
            for code, info in by_domain.items()
        ]
        names = ", ".join(where[:_MAX_NAMED]) + (", …" if len(where) > _MAX_NAMED else "")
        self.refusal = self._refusal(f"its members are not in one {self._what}: {names}")
        return None

    def _name(self, row: int) -> str:
        """Returns the name of the domain that a node is in, from its labels."""
        return "/".join(self._text(key, row) for key in self._required)

    def _text(self, key: str, row: int) -> str:
        return shown(self._texts_at(key, np.array([row]))[0])

    def _texts_at(self, key: str, rows: IntArray) -> list[str]:
        """Returns the label's values on these nodes; "" where it is missing."""
        codes, values = self._trial.label(key)
        if key not in self._texts:
            self._texts[key] = [*values, ""]  # code -1, a missing label, reads the last one
        texts = self._texts[key]
        return [texts[code] for code in codes[rows].tolist()]

    # -- in which order --------------------------------------------------------------------------------

    def areas(self, most: int = MAX_DOMAINS) -> Iterator[Area]:
        """Yields areas to try the group on, best first, without those that cannot hold it; from `most`
        domains at most."""
        for area in self._candidates(most) if self.is_constrained else (Area(None, "", is_whole=True),):
            if area.mask is None or not self._is_hopeless(area.mask):
                self.n_answered += 1
                yield area

    def _candidates(self, most: int) -> Iterator[Area]:
        n_all, held = len(self._demand.members), self._held(self._codes)
        enough = self._open(held, self._demand.n_needed)
        if held[enough].max(initial=0) >= n_all:  # placing one more member comes before any preference
            for depth in reversed(range(len(self._preferred))):
                yield from self._narrow(depth, enough[held[enough] >= n_all])
        ordered = self._sorted(self._codes, enough, np.minimum(held, n_all), self._preferred)
        if len(ordered) > most:
            self.n_left_out += len(ordered) - most
            ordered = in_turns(ordered, most, self._demand.group.attempts)
        for domain in ordered:
            mask = self._codes == domain
            name = self._name(int(mask.argmax()))
            fewer = self._fewest_domains(mask, self._preferred)
            if fewer is not None:
                yield Area(fewer, name, is_whole=False)
            yield Area(mask if self._required else self._demand.within, name, is_whole=True)

    def _open(self, held: IntArray, wanted: int) -> IntArray:
        """Returns domains that hold that many members, of those that members placed already allow."""
        enough: IntArray = np.flatnonzero(held >= wanted)
        return enough if self._pin is None else enough[enough == self._pin]

    def _narrow(self, depth: int, domains: IntArray) -> Iterator[Area]:
        """Yields single domains of a preferred label that hold all members, or those that members are in
        already."""
        n_all = len(self._demand.members)
        codes = self._domains([*self._required, self._preferred[depth]], np.isin(self._codes, domains))
        held = self._held(codes)
        taken = np.unique(codes[[info.row for info in self._here]])
        taken = taken[taken >= 0]
        if len(taken):
            mask = np.isin(codes, taken)
            masks = [mask] if self._held_by(mask) >= n_all else []
        else:
            narrower = self._preferred[depth + 1 :]
            ordered = self._sorted(codes, np.flatnonzero(held >= n_all), held, narrower)
            masks = [codes == one for one in ordered[:_MAX_NARROW]]
        for mask in masks:
            name = self._name(int(mask.argmax()))
            fewer = self._fewest_domains(mask, self._preferred[depth + 1 :])
            if fewer is not None:
                yield Area(fewer, name, is_whole=False)
            yield Area(mask, name, is_whole=False)

    def _sorted(
        self, codes: IntArray, domains: IntArray, held: IntArray, preferred: Sequence[str]
    ) -> list[int]:
        """Sorts `domains`, the best first: most members, fewest preferred domains, fewest nodes, the pods'
        preferences, tightest."""
        if len(domains) < 2:
            return [int(one) for one in domains]
        rows = np.flatnonzero((codes >= 0) & (self._amounts > 0))
        mine, amounts = codes[rows], self._amounts[rows]
        keys: list[IntArray | FloatArray] = [-held]
        if self._now is not None:
            keys.append(-self._held(codes, self._now))
        for key in preferred:
            narrow = self._domains([key], codes >= 0)[rows]
            pairs, at = np.unique(np.stack([mine, narrow]), axis=1, return_inverse=True)
            sums = np.bincount(at.reshape(-1), weights=amounts).astype(np.int64)
            sums[pairs[1] < 0] = 0  # a node without the label is in no domain of it
            keys.append(fewest(pairs[0], sums, held))
        keys += [fewest(mine, amounts, held), *self._worth(codes, len(held))]
        keys.append(np.bincount(mine, weights=amounts, minlength=len(held)).astype(np.int64))
        ranks = np.stack(keys, axis=1)
        first = _first_rows(codes, len(held))[domains]
        names = [self._texts_at(key, first) for key in (*self._required, *self._preferred)]
        order = sorted(zip(*ranks[domains].T.tolist(), *names, domains.tolist(), strict=True))
        return [int(one[-1]) for one in order]

    def _worth(self, codes: IntArray, n_domains: int) -> list[FloatArray]:
        """By domain, for each template whose pods state preferences; smaller is better."""
        found, profile = [], self._demand.profile
        for kind in self._kinds:
            if kind.state is None or not profile.scoring.has_stated(kind.state, kind.template, self._trial):
                continue
            rows = np.flatnonzero((codes >= 0) & (kind.room > 0))
            wanted = profile.stated(kind.state, kind.template, self._trial, rows)
            if wanted is not None:
                n_members = np.full(n_domains, kind.n, dtype=np.int64)
                found.append(-worth(codes[rows], kind.room[rows], wanted, n_members))
        return [sum(found[1:], found[0])] if found else []

    def _fewest_domains(self, mask: BoolArray, keys: Sequence[str]) -> BoolArray | None:
        """Returns the nodes of the fewest domains of each label, widest label first, that together hold as
        many members as all of `mask`; None: only all of it does."""
        wanted = min(self._held_by(mask), len(self._demand.members))
        left = mask
        for key in keys:
            codes = self._domains([key], left)
            is_in = codes >= 0
            sums = np.bincount(codes[is_in], weights=self._amounts[is_in]).astype(np.int64)
            own = [int(codes[info.row]) for info in self._here]
            picked = [one for one in dict.fromkeys(own) if one >= 0]
            missing = wanted - int(sums[picked].sum())
            row_of = dict(zip(codes[is_in].tolist(), np.flatnonzero(is_in).tolist(), strict=True))
            others = [one for one in np.flatnonzero(sums).tolist() if one not in picked]
            others.sort(key=lambda one: (-int(sums[one]), self._text(key, row_of[one])))
            if missing > int(sums[others].sum()):
                break  # nodes outside every domain of this label are needed
            while missing > 0:
                last = [one for one in others if sums[one] >= missing]
                one = min(last, key=lambda one: int(sums[one])) if last else others[0]
                others.remove(one)
                picked.append(one)
                missing -= int(sums[one])
            left = left & np.isin(codes, picked)
        return None if (left == mask).all() else left

    def _held(self, codes: IntArray, room: _Room | None = None) -> IntArray:
        """int64[n_domains]: an upper bound of how many members have room in each."""
        kinds, amounts = (self._kinds, self._amounts) if room is None else room
        is_in = codes >= 0
        mine = codes[is_in]
        total: IntArray = np.zeros(int(codes.max(initial=0)) + 1, dtype=np.int64)
        for kind in kinds:
            sums = np.bincount(mine, weights=kind.room[is_in], minlength=len(total))
            total += np.minimum(sums.astype(np.int64), kind.n)
        if len(kinds) > 1:
            sums = np.bincount(mine, weights=amounts[is_in], minlength=len(total))
            total = np.minimum(total, sums.astype(np.int64))
        return total

    def _held_by(self, mask: BoolArray) -> int:
        each = sum(min(int(kind.room[mask].sum()), kind.n) for kind in self._kinds)
        return min(each, int(self._amounts[mask].sum()))

    def _is_hopeless(self, mask: BoolArray) -> bool:
        """Whether plugins that see pods rule out that enough members fit there."""
        filtering = self._demand.profile.filtering
        n = 0
        for kind in self._kinds:
            if kind.state is None:
                return False
            room = np.where(mask, kind.room, 0)
            if filtering.sees_pods(kind.state):
                others = [other for other in self._unit_templates if other is not kind.template]
                n += filtering.at_most(kind.state, kind.template, self._trial, others, kind.n, room)
            else:
                n += min(int(room.sum()), kind.n)
        asked = asked_together(self._kinds)
        if asked and len(asked) == len(self._unit_templates):  # pods may want to be near another group's
            n = min(n, filtering.joint_room.most(asked, self._trial, np.where(mask, self._amounts, 0)))
        return n < self._demand.n_needed

    # -- why not ---------------------------------------------------------------------------------------

    def _refusal(self, reason: str, inner: FitError | None = None, where: str = "") -> FitError:
        return refusal(self._demand, self._kinds, reason, inner, where)

    def nowhere(self, run: _Run) -> FitError:
        """Explains that no domain holds the group: how near each comes, and what the nearest one lacks."""
        if not self._required:
            inner = run([self._demand], 0)
            return self.unfit([""], inner if isinstance(inner, FitError) else None)
        held = self._held(self._codes)
        first = _first_rows(self._codes, len(held))
        there = [one for one in np.flatnonzero(first >= 0).tolist() if self._pin in (None, one)]
        needed = self._demand.n_needed
        if not there:
            if self._pin is not None:
                return self._refusal(f"the {self._what} of its members has no node for another member")
            if self._demand.within is None and (unknown := unknown_label(self._required, self._trial)):
                return self._refusal(unknown)
            labels = "the label" if len(self._required) == 1 else "all of the labels"
            return self._refusal(f"no node has {labels} {', '.join(self._required)}")
        texts = [self._texts_at(key, first[there]) for key in self._required]
        names = {one: "/".join(map(shown, each)) for one, *each in zip(there, *texts, strict=True)}
        ranked = sorted(there, key=lambda one: (-int(held[one]), names[one]))
        best = names[ranked[0]]
        why = None
        if self._demand.within is None:  # else it is one of a thousand what-ifs
            inner = run([replace(self._demand, within=self._codes == ranked[0], within_name=best)], 0)
            why = inner if isinstance(inner, FitError) else None
        if held[ranked[0]] >= needed:
            return self.unfit([names[one] for one in ranked if held[one] >= needed], why)
        if self._pin is not None:
            room = f"room for {held[ranked[0]]} of" if held[ranked[0]] else "no room for"
            return self._refusal(
                f"its members are in {self._what} {best}, which has {room} {several(needed, 'more member')}",
                why,
                best,
            )
        parts = [f"{names[one]} could take {held[one]}" for one in ranked[:_MAX_NAMED]]
        if (more := len(ranked) - len(parts)) > 0:
            parts.append(f"{several(more, 'other')} no more than that")
        return self._refusal(
            f"no {self._what} has room for {_members_text(needed)}: {', '.join(parts)}", why, best
        )

    def unfit(self, names: Sequence[str], inner: FitError | None) -> FitError:
        """Explains that domains have the room, but the members' other rules cannot be met in any."""
        tried = list(dict.fromkeys(names))
        if not self._required and inner is not None:
            return inner
        text = ", ".join(tried[:_MAX_NAMED])
        text += f" and {len(tried) - _MAX_NAMED} more" if len(tried) > _MAX_NAMED else ""
        needed = _members_text(self._demand.n_needed)
        return self._refusal(
            f"no {self._what or 'node'} can take {needed} placed as they ask; tried: {text}",
            inner,
            tried[0],
        )


def refusal(
    demand: Demand, kinds: Sequence[TemplateMembers], reason: str, inner: FitError | None, where: str
) -> FitError:
    """Returns the error with this sentence; with an inner error, also what the domain `where` lacks."""
    group = demand.group
    gang = str(group.key) if group.is_gang else ""
    if inner is None:
        text: Why = sentence(reason)
        return FitError(group, OfGang(gang, text) if gang else text, _rejected_by(demand, kinds))
    # What is proved is proved of that domain alone.
    there = proved_there(without_gang(gang, inner.why) if gang else inner.why)
    why: Why = NearestDomain(reason, where, there)
    rejected = tuple(dict.fromkeys((*_rejected_by(demand, kinds), *inner.rejected_by)))
    short = inner.shortage
    if short is not None:
        short = replace(short, about_domains=f"{reason}. In {where}: ")
    why = OfGang(gang, why) if gang else why
    return replace(inner, group=group, why=why, rejected_by=rejected, shortage=short)


def _rejected_by(
    demand: Demand, kinds: Sequence[TemplateMembers]
) -> tuple[tuple[str, PodTemplate | None], ...]:
    """All plugins that may refuse a node: in each domain a different one may be the cause."""
    found: list[tuple[str, PodTemplate | None]] = [(TOPOLOGY, None)]
    for kind in kinds:
        if kind.state is not None:
            names = demand.profile.filtering.refusing_plugins(kind.state)
            found += [(name, kind.template) for name in names]
    return tuple(found)


def _first_rows(codes: IntArray, n_domains: int) -> IntArray:
    """int64[n_domains]: a node of each domain, -1 where it has none."""
    found: IntArray = np.full(n_domains, -1, dtype=np.int64)
    rows = np.flatnonzero(codes >= 0)[::-1]
    found[codes[rows]] = rows
    return found


def _members_text(n: int) -> str:
    return several(n, "member") if n > 1 else "one member"


def _placed(demand: Demand) -> list[PodInfo]:
    """Members that hold room already and stay: a terminating one restricts no member."""
    return [
        info
        for info in demand.group.members.values()
        if info.state in _HERE and info.row != NO_ROW and info.pod.metadata.deletion_timestamp is None
    ]
