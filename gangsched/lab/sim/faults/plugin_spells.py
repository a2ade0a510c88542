"""Spells: when out-of-tree plugins refuse what they are asked, and which groups they have refused since.

A plugin has spells in virtual time, drawn from a seed: in some it refuses some or all questions. Once the
weather is calm it agrees to everything, for good. Not here: the questions (lab.sim.faults.fickle_plugins),
and checks of the answers' effects (lab.sim.runs.fickle_run).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from random import Random
from zlib import crc32

from gangsched.core.types.group import Group, PodInfo
from gangsched.lab.sim.timeline import Timeline
from gangsched.lab.sim.world.weather import Weather

_SHARES = (0.3, 0.6, 1.0)
"""Shares of the questions that a plugin refuses in a bad spell."""
_SHORTEST_S, _LONGEST_S = 0.5, 12.0
_WITHIN_S = 1.0
_MANY = 4
"""A plugin may refuse one group at most this often within _WITHIN_S. The group's backoff lasts at least that
long, and ends early if its members, or their requests, change."""

Tries = Callable[[], Iterable[Group]]


class Spells:
    """One plugin's spells, and its answers in them."""

    def __init__(self, name: str, seed: int, timeline: Timeline, weather: Weather) -> None:
        self.name = name
        self._timeline = timeline
        self._weather = weather
        self._spells = Random(f"{seed}-spells-{name}")
        self._answers = Random(f"{seed}-answers-{name}")
        self._n = 0
        self._share = 0.0
        self._until_s = 0.0

    def refuses(self) -> bool:
        """Whether it refuses this time; asked the same again, it may not."""
        share = self._share_now()
        return bool(share) and self._answers.random() < share

    def refuses_about(self, *what: Hashable) -> bool:
        """Whether it refuses, with one answer to one question while the spell lasts."""
        share = self._share_now()
        return bool(share) and self.number_for(*what) < share

    def number_for(self, *what: Hashable) -> float:
        """A number from 0 to 1 for the question, another one in each spell."""
        return crc32(f"{self.name} {self._n} {what}".encode()) / 2.0**32

    def choose(self, *answers: str) -> str:
        return self._answers.choice(answers)

    def _share_now(self) -> float:
        rates = self._weather.rates
        if not rates.bad_spells or self.name in rates.without:
            return 0.0
        while self._until_s <= self._timeline.now_s:
            self._n += 1
            self._until_s += self._spells.uniform(_SHORTEST_S, _LONGEST_S)
            is_bad = self._spells.random() < rates.bad_spells
            self._share = self._spells.choice(_SHARES) if is_bad else 0.0
        return self._share


class Salted:
    """The spells of a plugin with other arguments: it refuses other nodes and groups."""

    def __init__(self, spells: Spells, salt: int) -> None:
        self._base = spells
        self._salt = salt
        self.refuses, self.choose = spells.refuses, spells.choose

    def refuses_about(self, *what: Hashable) -> bool:
        return self._base.refuses_about(self._salt, *what)

    def number_for(self, *what: Hashable) -> float:
        return self._base.number_for(self._salt, *what)


class Refusals:
    """Which groups the plugins of one process have refused, or failed on, and at which of their attempts.

    no-endless-refusals: no plugin has to refuse one group many times within a second.
    """

    def __init__(self, timeline: Timeline, *, has_gate: bool) -> None:
        """has_gate: whether each pod is kept out until the edge has let it in."""
        self._timeline = timeline
        self.has_gate = has_gate
        self._at: dict[str, int] = {}
        self.groups: Tries = tuple
        """All groups that the process has now."""
        self._times_s: dict[str, list[float]] = {}
        self.too_many: list[str] = []
        """The violations found."""
        self.kept_out: set[str] = set()
        """UIDs of pods that PreEnqueue keeps out."""
        self.let_in: set[str] = set()
        """UIDs of pods that PreEnqueue at the edge has let in."""

    def refused(self, group: Group | None, *, n_more: int = 0) -> None:
        """Records a refusal. None: the plugin was asked about a template alone, which may be any group's.
        n_more: how many more of the group's turns will end with it."""
        for one in self.groups() if group is None else (group,):
            self._at[str(one.key)] = one.attempts + n_more

    def refused_places(self, group: Group, point: str) -> None:
        """Records a refusal by a plugin that is asked once the group is placed."""
        self.refused(group)
        now_s, key = self._timeline.now_s, f"{group.key} in {point}"
        times_s = [one for one in self._times_s.get(key, ()) if one > now_s - _WITHIN_S]
        self._times_s[key] = [*times_s, now_s]
        if len(times_s) >= _MANY:
            self.too_many.append(
                f"no-endless-refusals: {key} was refused {len(times_s) + 1} times within a second"
            )

    def waits_since(self, group: Group) -> bool:
        """Whether a plugin has refused it, or may have, and it has not been tried since."""
        is_refused = self._at.get(str(group.key), -1) >= group.attempts
        return is_refused or any(self._is_out(info) for info in group.members.values())

    def _is_out(self, info: PodInfo) -> bool:
        if info.pod.spec.node_name:
            return False
        return info.uid in self.kept_out or (self.has_gate and info.uid not in self.let_in)
