"""The weight of a gang's packing among the scores: annotation `gangsched.io/packing-weight`.

On a pod or a PodGroup. Without it the profile's setting `packing` applies; without that too, a gang is packed
first, and scores decide among equally tight placements. The points are those of
core.framework.scores.packing_score.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gangsched.errors import ParseError

PACKING_WEIGHT_KEY = "gangsched.io/packing-weight"
MAX_PACKING_WEIGHT = 100_000
"""Exceeds all scores together, yet sums stay exact."""
_NUMBER = re.compile(r"[0-9]{1,6}")


def annotated_packing_weight(annotations: Mapping[str, str] | None) -> int | None:
    """The weight in the annotations of a pod or a PodGroup; None: none. Raises: ParseError."""
    text = annotations.get(PACKING_WEIGHT_KEY) if annotations else None
    if text is None:
        return None
    if not _NUMBER.fullmatch(text) or int(text) > MAX_PACKING_WEIGHT:
        raise ParseError(
            f"{text[:80]!r} is not a whole number from 0 to {MAX_PACKING_WEIGHT}", field=PACKING_WEIGHT_KEY
        )
    return int(text)
