"""Leader election's fields and flags as numbers, checked together.

Lives here: the rules between them. Not here: the election (kube.election.lease). Called by config.
Sources: k8s.io/component-base `config/validation`, client-go `tools/leaderelection` (NewLeaderElector).
"""

from __future__ import annotations

import re
from collections.abc import Mapping

import msgspec

from gangsched.config.documents.kube import LeaderElection
from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s

# client-go's JitterFactor: a retry may come later than its period by this factor.
_JITTER = 1.2
# A Lease has its duration in seconds as an int32.
_MAX_LEASE_S = 2**31 - 1
_LABEL = r"[a-z0-9](?:[-a-z0-9]{0,61}[a-z0-9])?"
_NAMESPACE = re.compile(_LABEL)
_NAME = re.compile(rf"(?=.{{1,253}}\Z){_LABEL}(?:\.{_LABEL})*")


class LeaderElectionSettings(msgspec.Struct, frozen=True):
    """Who may lead, and how long without renewal; meanings as in KubeSchedulerConfiguration."""

    leader_elect: bool = False
    lease_duration_s: float = 15.0
    renew_deadline_s: float = 10.0
    retry_period_s: float = 2.0
    resource_name: str = "gangsched"
    resource_namespace: str = "kube-system"


def resolve_election(document: LeaderElection, flags: Mapping[str, str | bool]) -> LeaderElectionSettings:
    """The file's section with the flags over it. `flags` by the section's field names, as written.

    Raises: ConfigError, whose path is the flag if a flag gave the value.
    """
    given = msgspec.structs.replace(document, **flags)

    def where(name: str) -> str:
        return (
            f"--leader-elect-{name.replace('_', '-')}" if name in flags else f"leaderElection.{_camel(name)}"
        )

    seconds = {
        name: duration_s(getattr(given, name), where(name))
        for name in ("lease_duration", "renew_deadline", "retry_period")
    }
    if given.resource_lock != "leases":
        raise ConfigError(
            f"{given.resource_lock!r} is not there; only leases is", path=where("resource_lock")
        )
    if not _NAME.fullmatch(given.resource_name):
        raise ConfigError(f"{given.resource_name!r} is not an object's name", path=where("resource_name"))
    if not _NAMESPACE.fullmatch(given.resource_namespace):
        raise ConfigError(
            f"{given.resource_namespace!r} is not a namespace's name", path=where("resource_namespace")
        )
    if given.leader_elect:
        _check_order(given, seconds, where("lease_duration"), where("renew_deadline"), where("retry_period"))
    return LeaderElectionSettings(
        bool(given.leader_elect),
        seconds["lease_duration"],
        seconds["renew_deadline"],
        seconds["retry_period"],
        given.resource_name,
        given.resource_namespace,
    )


def _check_order(
    given: LeaderElection, seconds: Mapping[str, float], lease: str, renew: str, retry: str
) -> None:
    """Checks that a leader stops before another may start, and has more than one try to renew."""
    if seconds["retry_period"] <= 0:
        raise ConfigError(f"{given.retry_period} is not greater than 0", path=retry)
    if seconds["renew_deadline"] <= seconds["retry_period"] * _JITTER:
        raise ConfigError(
            f"{given.renew_deadline} is not greater than {_JITTER} times retryPeriod, {given.retry_period}",
            path=renew,
        )
    if seconds["lease_duration"] <= seconds["renew_deadline"]:
        raise ConfigError(
            f"{given.lease_duration} is not greater than renewDeadline, {given.renew_deadline}", path=lease
        )
    if seconds["lease_duration"] > _MAX_LEASE_S:
        raise ConfigError(f"{given.lease_duration} is more than a Lease can say, {_MAX_LEASE_S}s", path=lease)


def _camel(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
