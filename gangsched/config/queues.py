"""`queues` and `fairness` in the configuration file, checked as a whole. Floor 0; called by config only.

Lives here: the tree as written, parents first, or a ConfigError that names the place. Not here: what queues
hold and which is next (core.cache.queues.book), a pod's queue (core.cache.queues.tree).
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Literal

import msgspec

from gangsched.config.documents.ours import OurDocument
from gangsched.config.documents.queues import QueueDocument
from gangsched.config.profiles import ProfileConfig
from gangsched.config.queueing import NEEDS, check_bound, is_on
from gangsched.errors import ConfigError, ParseError
from gangsched.model.resources import CPU, amount_text, parse_quantities
from gangsched.model.text.names import is_qualified_name
from gangsched.reading.durations import duration_s, duration_text
from gangsched.reading.strict import decode, join

FAIRNESS = "Fairness"
"""The plugin that `queues` enables in every profile."""
_BY_PRIORITY = "PrioritySort"
_PREEMPTION = "DefaultPreemption"
MAX_DEPTH = 8
MAX_QUEUES = 1_000
MAX_NAMESPACES = 10_000
_MAX_SHARE = 1_000_000.0
_MAX_WALLTIME_S = 10 * 366 * 86_400.0
_MAX_HALF_LIFE_S = 366 * 86_400.0
_MAX_COMPARED = 16
# At most as long as a label's value, which may name a queue.
_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_PATTERN = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?|([a-z0-9][-a-z0-9]{0,61})?\*")


class QueueConfig(msgspec.Struct, frozen=True):
    """One queue. parent: its name, "" at the top. share: among its siblings. guaranteed and limit: of the
    whole subtree, by resource (cpu in thousandths, everything else in whole units). namespaces: exact names
    and prefixes that end in `*`; only leaves have them. default_walltime_s, bound: None if it is not set; a
    bound may be `auto` (config.queueing)."""

    name: str
    parent: str = ""
    share: float = 1.0
    guaranteed: Mapping[str, int] = {}
    limit: Mapping[str, int] = {}
    namespaces: tuple[str, ...] = ()
    default_walltime_s: float | None = None
    order: Literal["fifo", "shortest"] = "fifo"
    bound: int | Literal["auto"] | None = None


class QueuesSettings(msgspec.Struct, frozen=True):
    """The tree, parents before their children, and how shares are compared.

    half_life_s: of past usage, for a queue's decayed share; 0: only current usage counts. compare: resources;
    a queue's share is the largest of its parts of them in the cluster. reads_others: other systems' queue
    labels count too. reclaim: whether pods are evicted for another queue's guaranteed resources, also for its
    fair share, or for neither. by_kueue: what Kueue has admitted does not count in limits.
    """

    queues: tuple[QueueConfig, ...]
    half_life_s: float = 86_400.0
    compare: tuple[str, ...] = ("nvidia.com/gpu", "cpu", "memory")
    reads_others: bool = False
    reclaim: Literal["guaranteed", "fair", "never"] = "guaranteed"
    by_kueue: bool = False


def resolve_queues(ours: OurDocument) -> QueuesSettings | None:
    """Returns None if the file has no queues. Raises: ConfigError."""
    if not ours.queues:
        if ours.fairness is not None:
            raise ConfigError("needs queues, of which there are none", path="fairness")
        return None
    found = _Found(has_walltimes=is_on(ours))
    for i, written in enumerate(ours.queues):
        found.add(written, None, f"queues[{i}]", 1)
    fairness = ours.fairness
    if fairness is None:
        return QueuesSettings(tuple(found.queues))
    half_life_s = duration_s(fairness.half_life, "fairness.halfLife")
    if not 0 <= half_life_s <= _MAX_HALF_LIFE_S:
        text = f"{fairness.half_life!r} is not within 0s..{_MAX_HALF_LIFE_S / 3600:g}h"
        raise ConfigError(text, path="fairness.halfLife")
    if not 0 < len(fairness.compare) <= _MAX_COMPARED:
        raise ConfigError(f"needs 1 to {_MAX_COMPARED} resources", path="fairness.compare")
    for i, resource in enumerate(fairness.compare):
        _check_resource(resource, f"fairness.compare[{i}]")
    reads_others = fairness.other_queues == "read"
    by_kueue = fairness.kueue_admission == "passesLimits"
    return QueuesSettings(
        tuple(found.queues), half_life_s, fairness.compare, reads_others, fairness.reclaim, by_kueue
    )


def with_fairness(
    profiles: tuple[ProfileConfig, ...],
    settings: QueuesSettings | None,
    known: Collection[str],
    notes: list[str],
) -> tuple[ProfileConfig, ...]:
    """Makes every profile run the plugin Fairness if there are queues, and none otherwise.

    It takes PrioritySort's place; another QueueSort, chosen in the file, stays. Raises: ConfigError.
    """
    found = []
    if settings is not None and settings.by_kueue and not any(one.limit for one in settings.queues):
        notes.append("fairness.kueueAdmission: passesLimits: no queue has a limit, so it has no effect")
    for i, profile in enumerate(profiles):
        sorts, gates = profile.plugins["queueSort"], profile.plugins["preEnqueue"]
        if settings is None and FAIRNESS in (*sorts, *gates):
            path = f"profiles[{i}].plugins"
            raise ConfigError(f"{FAIRNESS} needs queues, of which there are none", path=path)
        if settings is not None and FAIRNESS in known:
            if sorts == (_BY_PRIORITY,):
                sorts = (FAIRNESS,)
            elif sorts != (FAIRNESS,):
                notes.append(
                    f"profiles[{i}].plugins.queueSort: {sorts[0]} orders the line, so the queues' shares,"
                    " guarantees and orders have no effect; their limits have"
                )
            gates = gates if FAIRNESS in gates else (*gates, FAIRNESS)
            plugins = {**profile.plugins, "queueSort": sorts, "preEnqueue": gates}
            profile = msgspec.structs.replace(profile, plugins=plugins)
        found.append(profile)
    return tuple(found)


def note_lost_guarantees(
    profiles: Sequence[ProfileConfig],
    settings: QueuesSettings | None,
    notes: list[str],
    *,
    may_evict: bool,
) -> None:
    """Notes guarantees that nothing gives back once others have borrowed them."""
    if settings is None or not any(one.guaranteed for one in settings.queues):
        return
    left = "what others have borrowed of a guarantee is got back only as their pods end"
    if not may_evict:
        notes.append(f"queues: allowEviction is false, so {left}")
    elif settings.reclaim == "never":
        notes.append(f"fairness.reclaim: never: {left}")
    else:
        notes += [
            f"profiles[{i}].plugins.postFilter: {_PREEMPTION} is disabled, so for pods of"
            f" {one.scheduler_name} {left}"
            for i, one in enumerate(profiles)
            if _PREEMPTION not in one.plugins["postFilter"]
        ]
    for queue in settings.queues:
        for resource, limit in queue.limit.items():
            if not limit and queue.guaranteed:
                notes.append(
                    f"queue {queue.name}: its limit of 0 {resource} keeps out all pods that ask for"
                    f" {resource}, whatever is guaranteed to it"
                )


class _Found:
    """The queues read so far, and the place of each name and namespace in the file."""

    def __init__(self, *, has_walltimes: bool) -> None:
        self.queues: list[QueueConfig] = []
        self._has_walltimes = has_walltimes
        self._names: dict[str, str] = {}
        self._namespaces: dict[str, str] = {}

    def add(self, written: QueueDocument, parent: QueueConfig | None, path: str, depth: int) -> QueueConfig:
        """Adds the queue and all below it."""
        self._check_place(written, path, depth)
        queue = QueueConfig(
            written.name,
            parent.name if parent is not None else "",
            written.share,
            _amounts(written.guaranteed, join(path, "guaranteed")),
            _amounts(written.limit, join(path, "limit")),
            written.namespaces,
            self._walltime_s(written.default_walltime, join(path, "defaultWalltime")),
            written.order,
            written.bound,
        )
        check_bound(written.bound, join(path, "bound"))
        if written.bound is not None and not self._has_walltimes:
            raise ConfigError(NEEDS, path=join(path, "bound"))
        _check_amounts(queue, path)
        if written.order != "fifo" and not self._has_walltimes:
            raise ConfigError(NEEDS, path=join(path, "order"))
        self.queues.append(queue)
        children = []
        for i, one in enumerate(written.queues):
            at = f"{join(path, 'queues')}[{i}]"
            children.append(self.add(decode(QueueDocument, one, at), queue, at, depth + 1))
        if not children and not queue.namespaces:
            raise ConfigError("needs namespaces, or queues below it", path=path)
        _check_children(queue, children, path)
        return queue

    def _check_place(self, written: QueueDocument, path: str, depth: int) -> None:
        at = join(path, "name")
        if depth > MAX_DEPTH:
            raise ConfigError(f"is more than {MAX_DEPTH} levels deep", path=path)
        if len(self.queues) >= MAX_QUEUES:
            raise ConfigError(f"more than {MAX_QUEUES} queues", path=path)
        if not _NAME.fullmatch(written.name):
            raise ConfigError(
                f"{written.name[:80]!r} is not a name of 1 to 63 lower case letters, digits and dashes",
                path=at,
            )
        if (other := self._names.setdefault(written.name, path)) != path:
            raise ConfigError(f"{written.name!r} is the name of {other} already", path=at)
        if not (math.isfinite(written.share) and 0 < written.share <= _MAX_SHARE):
            text = f"{written.share:g} is not greater than 0 and at most {_MAX_SHARE:g}"
            raise ConfigError(text, path=join(path, "share"))
        if written.namespaces and written.queues:
            raise ConfigError("only a queue without queues below it has namespaces", path=path)
        for i, namespace in enumerate(written.namespaces):
            where = f"{join(path, 'namespaces')}[{i}]"
            if not _PATTERN.fullmatch(namespace):
                raise ConfigError(
                    f"{namespace[:80]!r} is neither a namespace nor a prefix that ends in *", path=where
                )
            if namespace in self._namespaces:
                raise ConfigError(f"{namespace!r} is in {self._namespaces[namespace]} already", path=where)
            if len(self._namespaces) >= MAX_NAMESPACES:
                raise ConfigError(f"more than {MAX_NAMESPACES} namespaces in all", path=where)
            self._namespaces[namespace] = where

    def _walltime_s(self, text: str, path: str) -> float | None:
        if not text:
            return None
        seconds = duration_s(text, path)
        if not 0 < seconds <= _MAX_WALLTIME_S:
            limit = f"{_MAX_WALLTIME_S / 3600:g}h"
            raise ConfigError(f"{text!r} is not longer than 0 and at most {limit}", path=path)
        if not self._has_walltimes:
            raise ConfigError(NEEDS, path=path)
        return seconds


def _amounts(written: Mapping[str, str | int], path: str) -> dict[str, int]:
    amounts = {}
    for resource, text in written.items():
        at = join(path, resource)
        _check_resource(resource, at)
        try:
            amounts.update(parse_quantities({resource: str(text)}))
        except ParseError as error:
            raise ConfigError(str(error), path=at) from None
        if amounts.get(resource, 0) < 0:
            raise ConfigError(f"{text!r} is less than 0", path=at)
    return amounts


def _check_resource(resource: str, path: str) -> None:
    if not is_qualified_name(resource):
        raise ConfigError(f"{resource[:80]!r} is not the name of a resource", path=path)


def _check_amounts(queue: QueueConfig, path: str) -> None:
    for resource, amount in queue.guaranteed.items():
        limit = queue.limit.get(resource)
        if limit is not None and amount > limit:
            at = join(join(path, "guaranteed"), resource)
            raise ConfigError(
                f"{amount_text(resource, amount)} is more than its limit, {amount_text(resource, limit)}",
                path=at,
            )


def _check_children(queue: QueueConfig, children: Sequence[QueueConfig], path: str) -> None:
    """Checks that the guarantees of a queue's children fit its own."""
    sums: dict[str, int] = {}
    for child in children:
        for resource, amount in child.guaranteed.items():
            sums[resource] = sums.get(resource, 0) + amount
    for resource, amount in sums.items():
        own = queue.guaranteed.get(resource, 0)
        if amount > own:
            raise ConfigError(
                f"{resource}: the queues below it are guaranteed {amount_text(resource, amount)} together,"
                f" it is guaranteed {amount_text(resource, own)}",
                path=join(path, "guaranteed"),
            )


def _quantity(resource: str, amount: int) -> str:
    """Formats an amount for a document, exactly."""
    return amount_text(resource, amount) if resource == CPU else str(amount)


def effective_queues(settings: QueuesSettings | None) -> dict[str, Any]:
    """Returns the documents' fields `fairness` and `queues`; empty if there are none."""
    if settings is None:
        return {}
    written: dict[str, dict[str, Any]] = {}
    top: list[dict[str, Any]] = []
    for queue in settings.queues:
        one: dict[str, Any] = {"name": queue.name, "share": queue.share, "order": queue.order}
        for field, amounts in (("guaranteed", queue.guaranteed), ("limit", queue.limit)):
            one[field] = {resource: _quantity(resource, n) for resource, n in amounts.items()}
        one["namespaces"] = list(queue.namespaces)
        walltime_s = queue.default_walltime_s
        one["defaultWalltime"] = "" if walltime_s is None else duration_text(walltime_s)
        if queue.bound is not None:
            one["bound"] = queue.bound
        one["queues"] = []
        written[queue.name] = one
        (written[queue.parent]["queues"] if queue.parent else top).append(one)
    fairness = {
        "halfLife": duration_text(settings.half_life_s),
        "compare": list(settings.compare),
        "otherQueues": "read" if settings.reads_others else "ignore",
        "reclaim": settings.reclaim,
        "kueueAdmission": "passesLimits" if settings.by_kueue else "ignore",
    }
    return {"fairness": fairness, "queues": top}
