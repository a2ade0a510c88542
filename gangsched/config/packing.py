"""The weight of packing among the scores, by profile. Called by config only."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from gangsched.config.documents import OurDocument, Packing
from gangsched.errors import ConfigError
from gangsched.model.packing_weight import MAX_PACKING_WEIGHT


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
