"""Resources that extenders manage alone: NodeResourcesFit leaves them out. Floor 0; called by config only."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from gangsched.config.extenders import ExtenderConfig
from gangsched.config.profiles import ProfileConfig

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
