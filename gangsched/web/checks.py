"""What must be well for a scheduler to be called alive, and what for it to be called ready.

Lives here: one function a check, each over what it reads. Not here: how it is asked for (health.py).

| check | livez | readyz | fails when |
|---|---|---|---|
| ping | x | x | never: that it answers says that the event loop turns |
| leaderElection | x | x | the lease was lost, or has run out unnoticed: nothing is bound any more |
| informer-sync | | x | a kind has not been listed whole yet; a follower that follows everything is ready |
| watch | | x | a kind has been without a working watch for too long: decisions are made on old facts |
| credentials | | x | they could not be renewed |
| event-loop | | x | a turn took so long that leases and watches were in danger, a short while ago |
| inbox | | x | more comes in than is handled, and has for a while |
| shutdown | | x | it was asked to end |

Names are kube-scheduler's where it has the same check. No restart helps a server that cannot be reached, so
nothing of that kind is in livez.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Protocol

from gangsched.web.health import Check

# A watch found dead is opened anew within seconds; backoff ends at 30 s.
UNWATCHED_S = 45.0
# A kube-apiserver says at least a bookmark every minute or so on a watch that asks for them.
SILENT_S = 300.0
STUCK_S = 5.0
FULL_S = 10.0


class Watched(Protocol):
    """What is asked of a reflector."""

    last_heard_s: float
    watching: bool

    @property
    def is_missing(self) -> bool:
        """The server does not offer the kind."""
        ...


class Lease(Protocol):
    """What is asked of the elector."""

    @property
    def has_lost(self) -> bool: ...


def lease_check(lease: Lease) -> Check:
    return Check(
        "leaderElection",
        lambda: "the lease is lost, or was not renewed in time" if lease.has_lost else "",
    )


def sync_check(unheard: Callable[[], Iterable[str]]) -> Check:
    def problem() -> str:
        missing = sorted(unheard())
        return f"not listed yet: {', '.join(missing)}" if missing else ""

    return Check("informer-sync", problem)


def watch_check(reflectors: Mapping[str, Watched], clock_s: Callable[[], float]) -> Check:
    def problem() -> str:
        now_s = clock_s()
        for kind, reflector in reflectors.items():
            age_s = now_s - reflector.last_heard_s
            if reflector.is_missing or math.isinf(age_s):  # never heard of: that is informer-sync's
                continue
            if not reflector.watching and age_s > UNWATCHED_S:
                return f"{kind} is not watched, nothing heard for {age_s:.0f} s"
            if age_s > SILENT_S:
                return f"the watch of {kind} is silent for {age_s:.0f} s"
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
