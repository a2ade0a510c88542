"""What other systems' words count for: unsupported marks, by profile; PodGroups' classes. For config only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gangsched.config.documents import OurDocument
from gangsched.config.strict import nearest
from gangsched.errors import ConfigError
from gangsched.model.names import is_subdomain

REFUSE, WARN, IGNORE = "refuse", "warn", "ignore"
# A cluster has a dozen classes; each name is compared whenever a PodGroup changes.
_MAX_CLASSES = 100


def resolve_foreign(ours: OurDocument, names: Collection[str]) -> Mapping[str, str]:
    """Returns WARN or IGNORE by profile; if missing, REFUSE holds. `names`: all. Raises: ConfigError."""
    found = dict.fromkeys(names, str(ours.foreign_markers))
    reported: set[str] = set()
    for i, profile in enumerate(ours.profiles):
        path, name = f"profiles[{i}].schedulerName", profile.scheduler_name
        if name not in found:
            raise ConfigError(f"no profile is named {name!r}{nearest(name, found)}", path=path)
        if name in reported:
            raise ConfigError(f"{name!r} is given twice", path=path)
        reported.add(name)
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
