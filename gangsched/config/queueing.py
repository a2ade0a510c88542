"""The bound on being passed over, and default walltimes. Floor 0; called by config only."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Literal

import msgspec

from gangsched.config.documents.ours import OurDocument
from gangsched.config.documents.queueing import Bound, Queueing
from gangsched.errors import ConfigError
from gangsched.reading.durations import duration_s, duration_text

AUTO = "auto"
OFF, SHADOW, BUDGET = "off", "shadow", "budget"
DEFAULT_MODE: Literal["budget"] = "budget"
"""Costs least where no walltimes are stated: docs/queueing.md has the figures."""
YIELD, EVICT = "yield", "evict"
YIELDS = (YIELD, EVICT)
"""Values of onOverrun that allow evicting pods past their stated walltime for a claim."""
NEEDS = "needs queueing, which is off: queueing.bound.mode is off"
_MAX_BOUND = 1_000_000
_IDLE_PERCENT = 10
_MAX_WALLTIME_S = 10 * 366 * 86_400.0


class QueueingSettings(msgspec.Struct, frozen=True):
    """bound: how many groups may start ahead of a group that does not fit; None: derived from how many run
    when it is first refused (core.queueing.bypasses). default_walltime_s: by profile, if set. mode: shadow:
    passes are only counted and reported; hard: at its bound a group gets a claim (core.queueing.claims);
    budget: it gets one once the claim leaves no more idle than allowed, idle_share of the cluster
    (core.queueing.idle). on_overrun: yield: pods past their stated walltime may be evicted for a claim
    (core.kept.overrun); evict: also if no group waits (core.groups.walltime_evictions). gangs_alone: lone
    pods are neither counted nor get claims, so among themselves they start as in kube-scheduler.
    writes_estimates: estimated starts go to PodGroups and messages; else they are made only when asked for.
    """

    bound: int | None = None
    default_walltime_s: Mapping[str, float] = {}
    mode: Literal["shadow", "hard", "budget"] = "shadow"
    idle_share: float = _IDLE_PERCENT / 100
    on_overrun: Literal["none", "yield", "evict"] = "none"
    gangs_alone: bool = False
    writes_estimates: bool = True


def is_on(ours: OurDocument) -> bool:
    """Whether walltimes are read and passes counted: they are, unless the file says `off`."""
    return ours.queueing is None or ours.queueing.bound.mode != OFF


def resolve_queueing(ours: OurDocument, names: Collection[str]) -> QueueingSettings | None:
    """Returns None if the bound's mode is `off`: nothing is then read or counted. Raises: ConfigError."""
    written = ours.queueing or Queueing()
    own = {one.scheduler_name: one.default_walltime for one in ours.profiles}
    if written.bound.mode == "off":
        _check_off(ours, written)
        return None
    groups = written.bound.groups
    check_bound(groups, "queueing.bound.groups")
    for_all = _walltime_s(written.default_walltime, "queueing.defaultWalltime")
    defaults = {}
    for name in names:
        default_s = for_all
        if (value := own.get(name)) is not None:
            i = next(i for i, one in enumerate(ours.profiles) if one.scheduler_name == name)
            default_s = _walltime_s(value, f"profiles[{i}].defaultWalltime")
        if default_s:
            defaults[name] = default_s
    bound = groups if isinstance(groups, int) else None
    mode, on_overrun, protects = written.bound.mode, written.on_overrun, written.bound.protects
    gangs_alone = mode is None if protects is None else protects == "gangs"
    mode = mode or DEFAULT_MODE
    is_written = ours.queueing is not None
    writes_estimates = is_written if written.estimates is None else written.estimates == "written"
    if on_overrun in ("none", "yield") and mode == SHADOW:
        path = "queueing.onOverrun"
        raise ConfigError("needs claims, for which somebody may yield: bound.mode hard or budget", path=path)
    return QueueingSettings(
        bound,
        defaults,
        mode,
        _idle_share(written.bound),
        on_overrun or "none",
        gangs_alone,
        writes_estimates,
    )


def _check_off(ours: OurDocument, written: Queueing) -> None:
    """Raises: ConfigError."""
    needs = [
        ("queueing.bound.groups", written.bound.groups != AUTO),
        ("queueing.bound.protects", written.bound.protects is not None),
        ("queueing.bound.idlePercent", written.bound.idle_percent is not None),
        ("queueing.defaultWalltime", bool(written.default_walltime)),
        ("queueing.onOverrun", written.on_overrun is not None),
        ("queueing.estimates", written.estimates is not None),
        *((f"profiles[{i}].defaultWalltime", one.default_walltime) for i, one in enumerate(ours.profiles)),
    ]
    for path, is_said in needs:
        if is_said:
            raise ConfigError(NEEDS, path=path)


def check_bound(groups: int | str | None, path: str) -> None:
    """Raises: ConfigError."""
    if isinstance(groups, int) and not 1 <= groups <= _MAX_BOUND:
        raise ConfigError(f"{groups} is not {AUTO} or within 1..{_MAX_BOUND}", path=path)


def _idle_share(bound: Bound) -> float:
    percent, path = bound.idle_percent, "queueing.bound.idlePercent"
    if percent is None:
        return _IDLE_PERCENT / 100
    if bound.mode not in (None, BUDGET):
        raise ConfigError(f"needs mode: {BUDGET}; with mode: {bound.mode} nothing is budgeted", path=path)
    if not 1 <= percent <= 100:
        raise ConfigError(f"{percent} is not within 1..100", path=path)
    return percent / 100


def effective_walltime(settings: QueueingSettings, name: str) -> str:
    """Returns the walltime as in a file, "" if there is none."""
    default_s = settings.default_walltime_s.get(name)
    return "" if default_s is None else duration_text(default_s)


def _walltime_s(text: str, path: str) -> float:
    if not text:
        return 0.0
    seconds = duration_s(text, path)
    if not 0 < seconds <= _MAX_WALLTIME_S:
        raise ConfigError(f"{text!r} is not longer than 0 and at most {_MAX_WALLTIME_S / 3600:g}h", path=path)
    return seconds
