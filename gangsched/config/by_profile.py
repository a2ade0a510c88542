"""What an entry of `profiles` may set for itself, and what holds for profiles without: by profile.

Marks of other systems, inferred gangs, the weight of packing; and the resources that extenders manage alone.
Called by config.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

import msgspec

from gangsched.config.documents.ours import OurDocument, Packing, ProfileOptions
from gangsched.config.extenders import ExtenderConfig
from gangsched.config.profiles import ProfileConfig
from gangsched.errors import ConfigError
from gangsched.model.owners import ORDERED
from gangsched.model.stated.packing_weight import MAX_PACKING_WEIGHT
from gangsched.model.text.names import is_subdomain
from gangsched.reading.strict import nearest

REFUSE, WARN, IGNORE = "refuse", "warn", "ignore"
# A cluster has a dozen classes; each name is compared whenever a PodGroup changes.
_MAX_CLASSES = 100


def _entries(ours: OurDocument, names: Collection[str]) -> Mapping[str, ProfileOptions]:
    """Returns the entries of `profiles` by name, checked. Raises: ConfigError."""
    found: dict[str, ProfileOptions] = {}
    for i, profile in enumerate(ours.profiles):
        path, name = f"profiles[{i}].schedulerName", profile.scheduler_name
        if name not in names:
            raise ConfigError(f"no profile is named {name!r}{nearest(name, names)}", path=path)
        if name in found:
            raise ConfigError(f"{name!r} is given twice", path=path)
        found[name] = profile
    return found


def resolve_foreign(ours: OurDocument, names: Collection[str]) -> Mapping[str, str]:
    """Returns WARN or IGNORE by profile; if missing, REFUSE holds. `names`: all. Raises: ConfigError."""
    found = dict.fromkeys(names, str(ours.foreign_markers))
    for name, profile in _entries(ours, found).items():
        if profile.foreign_markers is not None:
            found[name] = profile.foreign_markers
    return {name: one for name, one in found.items() if one != REFUSE}


def resolve_classes(ours: OurDocument) -> frozenset[str]:
    """Returns the PriorityClasses that count where a PodGroup names them. Raises: ConfigError."""
    names, field = ours.pod_group_priority_classes, "podGroupPriorityClasses"
    if len(names) > _MAX_CLASSES:
        raise ConfigError(f"{len(names)} classes, at most {_MAX_CLASSES}", path=field)
    for i, name in enumerate(names):
        if not is_subdomain(name):
            raise ConfigError(f"{name[:80]!r} is not the name of a PriorityClass", path=f"{field}[{i}]")
    return frozenset(names)


def resolve_inferred(ours: OurDocument, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns them by profile, in the order in which a pod is checked against them. Raises: ConfigError."""
    inferred = dict.fromkeys(names, ours.infer_gangs)
    for name, profile in _entries(ours, inferred).items():
        if profile.infer_gangs is not None:
            inferred[name] = profile.infer_gangs
    return {name: tuple(one for one in ORDERED if one in wanted) for name, wanted in inferred.items()}


_FIT = "NodeResourcesFit"


def without_managed(
    profiles: tuple[ProfileConfig, ...], extenders: Sequence[ExtenderConfig]
) -> tuple[ProfileConfig, ...]:
    """Resources managed by an extender alone (ignoredByScheduler) are excluded from NodeResourcesFit."""
    names = [one.name for each in extenders for one in each.managed if one.ignored_by_scheduler]
    found = []
    for profile in profiles:
        args = profile.args.get(_FIT)
        if names and args is not None:
            ignored = tuple(dict.fromkeys((*args.ignored_resources, *names)))
            args = msgspec.structs.replace(args, ignored_resources=ignored)
            profile = msgspec.structs.replace(profile, args={**profile.args, _FIT: args})
        found.append(profile)
    return tuple(found)


def resolve_packing(ours: OurDocument, names: Collection[str]) -> Mapping[str, int]:
    """Returns the weight by profile; without one, gangs are packed first. Raises: ConfigError."""
    found: dict[str, int | None] = dict.fromkeys(names, _weight(ours.packing, "packing"))
    for i, one in enumerate(ours.profiles):
        if one.packing is not None:
            found[one.scheduler_name] = _weight(one.packing, f"profiles[{i}].packing")
    return {name: weight for name, weight in found.items() if weight is not None}


def _weight(packing: Packing, path: str) -> int | None:
    if packing.weight is not None and not 0 <= packing.weight <= MAX_PACKING_WEIGHT:
        raise ConfigError(f"{packing.weight} is not within 0..{MAX_PACKING_WEIGHT}", path=f"{path}.weight")
    return packing.weight
