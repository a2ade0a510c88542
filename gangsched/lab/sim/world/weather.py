"""Weather: what the network and the API server do to a request, and when; drawn from a seed.

Only probabilities and delays live here; lab.sim.world.api applies them, and lab.sim.faults.mischief acts on
the cluster. After `clear()` nothing goes wrong any more, which starts a run's second phase.
"""

from __future__ import annotations

import enum
from random import Random

import msgspec


class BindFate(enum.Enum):
    """What happens to one Binding POST."""

    ARRIVES = "arrives"
    LOST_BEFORE = "lost before the server saw it"
    LOST_AFTER = "committed, answer lost"
    LATE = "committed after the client gave up"
    CONFLICT = "409 without a reason"
    FORBIDDEN = "403"
    INVALID = "422"
    PROXIED = "a front end answered, which may have passed it on or not"


class HookFate(enum.Enum):
    """What happens to one plugin hook at the edge."""

    ANSWERS = "Success"
    REFUSES = "Unschedulable"
    FAILS = "Error"
    LATE = "Error, at the deadline"


class Rates(msgspec.Struct, frozen=True):
    """Probabilities per request (or per second for mischief); all zero is good weather.

    tampering: edited annotations, kubelets that swap devices (lab.sim.faults.tampering); the store is then
    wrong for a moment, so checks against it run at rest. sick: what kubelets find out about devices
    (lab.sim.faults.sick_devices). crashes: whether mischief includes the scheduler
    itself; a restart reorders everything. proxied: a front end answers in the API server's place, or with an
    answer about another object. throttled: 429, and that kind of request pauses. unread: a new process cannot
    list PodGroups of one kind for a while (a broken conversion webhook). misuse: hostile edits, thieves,
    clocks (lab.sim.faults.misuse). bad_spells: the share of plugins' spells that are bad
    (lab.sim.faults.plugin_spells). refused: the share of bound pods that kubelets do not admit. without:
    names of faults, mischief, misuse and plugins that are drawn but not carried out, so that all others
    happen as before.
    """

    lost_before: float = 0.0
    lost_after: float = 0.0
    late: float = 0.0
    conflict: float = 0.0
    forbidden: float = 0.0
    invalid: float = 0.0
    slow: float = 0.0
    eviction_refused: float = 0.0
    hook_refuses: float = 0.0
    hook_fails: float = 0.0
    hook_late: float = 0.0
    mischief_per_s: float = 0.0
    tampering_per_s: float = 0.0
    sick_per_s: float = 0.0
    proxied: float = 0.0
    throttled: float = 0.0
    unread: float = 0.0
    misuse_per_s: float = 0.0
    bad_spells: float = 0.0
    refused: float = 0.0
    without: frozenset[str] = frozenset()
    crashes: bool = True
    watch_delay_s: float = 0.02
    longest_timeout_s: float = 10.0


CALM = Rates()
STORM = Rates(
    lost_before=0.06,
    lost_after=0.06,
    late=0.03,
    conflict=0.04,
    forbidden=0.01,
    invalid=0.01,
    slow=0.05,
    eviction_refused=0.3,
    hook_refuses=0.08,
    hook_fails=0.08,
    hook_late=0.04,
    mischief_per_s=1.2,
    watch_delay_s=0.3,
)


class Weather:
    """Draws faults and delays."""

    def __init__(self, rng: Random, rates: Rates) -> None:
        self._rng = rng
        self.rates = rates

    def clear(self) -> None:
        """Stops all faults."""
        self.rates = CALM

    def bind_fate(self) -> BindFate:
        rates = self.rates
        drawn = self._rng.random()
        for fate, rate in (
            (BindFate.LOST_BEFORE, rates.lost_before),
            (BindFate.LOST_AFTER, rates.lost_after),
            (BindFate.LATE, rates.late),
            (BindFate.CONFLICT, rates.conflict),
            (BindFate.FORBIDDEN, rates.forbidden),
            (BindFate.INVALID, rates.invalid),
            (BindFate.PROXIED, rates.proxied),
        ):
            if drawn < rate:
                return BindFate.ARRIVES if fate.name.lower() in rates.without else fate
            drawn -= rate
        return BindFate.ARRIVES

    def hook_fate(self) -> HookFate:
        drawn = self._rng.random()
        for fate, rate in (
            (HookFate.REFUSES, self.rates.hook_refuses),
            (HookFate.FAILS, self.rates.hook_fails),
            (HookFate.LATE, self.rates.hook_late),
        ):
            if drawn < rate:
                return HookFate.ANSWERS if f"hook_{fate.name.lower()}" in self.rates.without else fate
            drawn -= rate
        return HookFate.ANSWERS

    def coin(self) -> bool:
        return self._rng.random() < 0.5

    def latency_s(self) -> float:
        """Returns the delay of one request, one way."""
        if self._happens("slow"):
            return self._rng.uniform(0.5, 4.0)
        return self._rng.uniform(0.001, 0.02)

    def timeout_s(self) -> float:
        """How long a client waits for an answer that never comes."""
        return self._rng.uniform(0.2, self.rates.longest_timeout_s)

    def watch_delay_s(self) -> float:
        if self._happens("slow"):
            return self._rng.uniform(0.5, 3.0)
        return self._rng.uniform(0.0, self.rates.watch_delay_s)

    def is_proxied(self) -> bool:
        """Whether a front end answers a request other than a Binding."""
        return bool(self.rates.proxied) and self._happens("proxied")

    def rest_s(self) -> float:
        """How long that kind of request must pause; usually 0."""
        if not self.rates.throttled or self._rng.random() >= self.rates.throttled:
            return 0.0
        rest_s = self._rng.uniform(0.5, 5.0)
        return 0.0 if "throttled" in self.rates.without else rest_s

    def unread_s(self) -> float:
        """How long all lists of one optional kind fail; usually 0."""
        if not self.rates.unread or not self._happens("unread"):
            return 0.0
        return self._rng.uniform(1.0, 90.0)

    def eviction_refused(self) -> bool:
        return self._happens("eviction_refused")

    def _happens(self, fault: str) -> bool:
        drawn: float = self._rng.random()
        return drawn < getattr(self.rates, fault) and fault not in self.rates.without
