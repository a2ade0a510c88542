"""What to do with unsupported marks of other systems, by profile. Called by config only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gangsched.config.documents import OurDocument
from gangsched.config.strict import nearest
from gangsched.errors import ConfigError

REFUSE, WARN, IGNORE = "refuse", "warn", "ignore"


def resolve_foreign(ours: OurDocument, names: Collection[str]) -> Mapping[str, str]:
    """Returns WARN or IGNORE by profile; if missing, REFUSE holds. `names`: all. Raises: ConfigError."""
    found = dict.fromkeys(names, str(ours.foreign_markers))
    told: set[str] = set()
    for i, profile in enumerate(ours.profiles):
        path, name = f"profiles[{i}].schedulerName", profile.scheduler_name
        if name not in found:
            raise ConfigError(f"no profile is named {name!r}{nearest(name, found)}", path=path)
        if name in told:
            raise ConfigError(f"{name!r} is given twice", path=path)
        told.add(name)
        if profile.foreign_markers is not None:
            found[name] = profile.foreign_markers
    return {name: one for name, one in found.items() if one != REFUSE}
