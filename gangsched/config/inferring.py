"""Which controllers' pods are gangs without stating it, by profile. Floor 0; called by config only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from gangsched.config.documents import OurDocument
from gangsched.config.strict import nearest
from gangsched.errors import ConfigError
from gangsched.model.owners import ORDERED


def resolve_inferred(ours: OurDocument, names: Iterable[str]) -> Mapping[str, tuple[str, ...]]:
    """Returns them by profile, in the order in which a pod is checked against them. Raises: ConfigError."""
    inferred = dict.fromkeys(names, ours.infer_gangs)
    seen: set[str] = set()
    for i, profile in enumerate(ours.profiles):
        path, name = f"profiles[{i}].schedulerName", profile.scheduler_name
        if name not in inferred:
            raise ConfigError(f"no profile is named {name!r}{nearest(name, inferred)}", path=path)
        if name in seen:
            raise ConfigError(f"{name!r} is given twice", path=path)
        seen.add(name)
        if profile.infer_gangs is not None:
            inferred[name] = profile.infer_gangs
    return {name: tuple(one for one in ORDERED if one in wanted) for name, wanted in inferred.items()}
