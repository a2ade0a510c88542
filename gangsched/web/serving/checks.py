"""The checks that a scheduler must pass to be alive, and to be ready.

Lives here: one function a check, each over the values it reads. Not here: the pages (health.py).

| check | livez | readyz | fails when |
|---|---|---|---|
| ping | x | x | never: an answer proves that the event loop runs |
| leaderElection | x | x | the lease was lost, or expired unnoticed: no more pods are bound |
| informer-sync | | x | a kind is not fully listed yet; a standby that follows everything is ready |
| watch | | x | a kind had no working watch for too long: decisions use stale data |
| credentials | | x | they could not be renewed |
| event-loop | | x | a recent turn took so long that it endangered leases and watches |
| inbox | | x | more events arrive than are handled, for some time |
| shutdown | | x | it is shutting down |

Names are kube-scheduler's if it has the same check. A restart does not help when the API server cannot be
reached, so livez does not check that.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from gangsched.web.serving.health import Check

# A dead watch is reopened within seconds; backoff ends at 30 s.
UNWATCHED_S = 45.0
# kube-apiserver sends a bookmark about every minute on a watch that requests them.
SILENT_S = 300.0
STUCK_S = 5.0
FULL_S = 10.0


class Watched(Protocol):
    """The part of a reflector that is checked."""

    last_heard_s: float
    watching: bool

    @property
    def is_missing(self) -> bool:
        """Whether the server does not serve the kind."""
        ...


class Lease(Protocol):
    """The part of the elector that is checked."""

    @property
    def has_lost(self) -> bool: ...


def lease_check(lease: Lease) -> Check:
    return Check(
        "leaderElection",
        lambda: "the lease is lost, or was not renewed in time" if lease.has_lost else "",
    )


def sync_check(unlisted: Callable[[], Iterable[str]]) -> Check:
    def problem() -> str:
        missing = sorted(unlisted())
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    return Check("informer-sync", problem)


def watch_check(reflectors: Mapping[str, Watched], clock_s: Callable[[], float]) -> Check:
    def problem() -> str:
        now_s = clock_s()
        for kind, reflector in reflectors.items():
            age_s = now_s - reflector.last_heard_s
            if reflector.is_missing or math.isinf(age_s):  # never listed: informer-sync reports that
                continue
            if not reflector.watching and age_s > UNWATCHED_S:
                return f"{kind} is not watched, nothing received for {age_s:.0f} s"
            if age_s > SILENT_S:
                return f"the watch of {kind} has been silent for {age_s:.0f} s"
        return ""

    return Check("watch", problem)


def credentials_check(last_error: Callable[[], str]) -> Check:
    return Check("credentials", last_error)


def loop_check(worst_lag_s: Callable[[], float]) -> Check:
    def problem() -> str:
        lag_s = worst_lag_s()
        return f"the event loop was held up for {lag_s:.1f} s" if lag_s > STUCK_S else ""

    return Check("event-loop", problem)


def inbox_check(full_for_s: Callable[[], float]) -> Check:
    def problem() -> str:
        full_s = full_for_s()
        return f"full for {full_s:.0f} s" if full_s > FULL_S else ""

    return Check("inbox", problem)


def shutdown_check(stopping: Callable[[], bool]) -> Check:
    return Check("shutdown", lambda: "process is shutting down" if stopping() else "")
