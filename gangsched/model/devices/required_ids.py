"""The resources whose device IDs must be known on a pod's node: annotation `gangsched.io/require-device-ids`.

`nvidia.com/gpu,example.com/nic`, or `true`: of every extended resource that the pod requests. On a pod, or on
a PodGroup for all its members. Without it, a node that does not list devices provides the number it reports.
"""

from __future__ import annotations

from collections.abc import Mapping

from gangsched.errors import ParseError
from gangsched.model.resources import is_extended

REQUIRE_IDS_KEY = "gangsched.io/require-device-ids"
ALL_RESOURCES = frozenset({"*"})
NONE_REQUIRED: frozenset[str] = frozenset()
_MAX_CHARACTERS = 2048


def parse_required_ids(text: str) -> frozenset[str]:
    """Returns names of resources, or ALL_RESOURCES. Raises: ParseError."""
    if text == "true":
        return ALL_RESOURCES
    if text == "false":
        return NONE_REQUIRED
    if len(text) > _MAX_CHARACTERS:
        raise ParseError(f"has {len(text)} characters, at most {_MAX_CHARACTERS}", field=REQUIRE_IDS_KEY)
    names = frozenset(name.strip() for name in text.split(","))
    for name in sorted(names):
        if not is_extended(name):
            raise ParseError(
                f"{name[:80]!r} is neither an extended resource such as nvidia.com/gpu nor true or false",
                field=REQUIRE_IDS_KEY,
            )
    return names


def annotated_required_ids(annotations: Mapping[str, str]) -> frozenset[str]:
    """Reads the annotation of a pod or a PodGroup. Raises: ParseError."""
    text = annotations.get(REQUIRE_IDS_KEY)
    return NONE_REQUIRED if text is None else parse_required_ids(text)
