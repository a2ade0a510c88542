"""Parsing that several dialects share: counts, durations, and our own annotations wherever they are
written."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

import msgspec

from gangsched.errors import ParseError
from gangsched.model.dialects.dialect import (
    ALL,
    GIVE_BACK,
    MOVE,
    SINGLE,
    STAY,
    GroupKey,
    Metadata,
    Numbers,
)
from gangsched.model.resources import parse_quantities
from gangsched.model.stated.packing_weight import annotated_packing_weight
from gangsched.model.stated.topology import annotated_topology
from gangsched.model.text import bounded

TOTAL_MEMBERS_KEY = "gangsched.io/total-members"
TIMEOUT_KEY = "gangsched.io/schedule-timeout"
GROUPS_KEY = "gangsched.io/groups"
PARTIAL_BIND_KEY = "gangsched.io/on-partial-bind"
DISRUPTION_KEY = "gangsched.io/disruption-mode"
RECOVER_WITHIN_KEY = "gangsched.io/recover-within"
IF_NOT_RECOVERED_KEY = "gangsched.io/if-not-recovered"
ON_DEVICE_FAILURE_KEY = "gangsched.io/on-device-failure"
OF_THE_GANG = (
    TOTAL_MEMBERS_KEY,
    TIMEOUT_KEY,
    GROUPS_KEY,
    PARTIAL_BIND_KEY,
    DISRUPTION_KEY,
    RECOVER_WITHIN_KEY,
    IF_NOT_RECOVERED_KEY,
)
"""Annotations about the gang as a whole: if it has a PodGroup they are read only there."""

MAX_MEMBERS = 100_000
MAX_START_TOGETHER = 64
_NUMBER = re.compile(r"[0-9]{1,9}")
# At most nine digits a part: a number too large for a float must not reach arithmetic.
_DURATION = re.compile(
    r"(?:([0-9]{1,9})h)?(?:([0-9]{1,9})m)?(?:([0-9]{1,9}(?:\.[0-9]{1,9})?)s)?|(?P<bare>[0-9]{1,9})"
)

_decode_names = bounded.decoder(list[str])


def annotated_numbers(annotations: Metadata, key: GroupKey) -> Numbers:
    """Reads the settings in our own annotations on a group's pods or its object.

    Raises: ParseError, naming the key.
    """
    return {
        "total_count": count(annotations.get(TOTAL_MEMBERS_KEY, "0"), TOTAL_MEMBERS_KEY, at_least=0),
        "start_together": start_together(annotations.get(GROUPS_KEY), key),
        "on_partial_bind": _partial_bind(annotations.get(PARTIAL_BIND_KEY)),
        "disruption_mode": _disruption_mode(annotations.get(DISRUPTION_KEY)),
        "recover_within_s": _recover_within_s(annotations.get(RECOVER_WITHIN_KEY)),
        "if_not_recovered": _if_not_recovered(annotations.get(IF_NOT_RECOVERED_KEY)),
        "schedule_timeout_s": annotated_timeout_s(annotations),
        "topology": annotated_topology(annotations),
        "packing_weight": annotated_packing_weight(annotations),
    }


def annotated_timeout_s(annotations: Metadata) -> float | None:
    """Returns how long reservations are held, in seconds; None: not stated. Raises: ParseError."""
    timeout = annotations.get(TIMEOUT_KEY)
    return None if timeout is None else parse_duration_s(timeout, TIMEOUT_KEY)


def count(value: object, field: str, *, at_least: int = 1) -> int:
    """Reads a number of members, a whole number in range. Raises: ParseError, naming the field."""
    text = str(value)
    if not _NUMBER.fullmatch(text) or not at_least <= int(text) <= MAX_MEMBERS:
        raise ParseError(f"{text[:80]!r} is not a whole number from {at_least} to {MAX_MEMBERS}", field=field)
    return int(text)


def min_resources(spec: Mapping[str, Any]) -> Numbers:
    """`spec.minResources`, which several dialects have. Raises: ParseError, naming the field."""
    resources = spec.get("minResources")
    if not isinstance(resources, dict):
        return {}
    try:
        return {"min_resources": parse_quantities(resources)}
    except ParseError as error:
        raise ParseError(error.message, field=f"spec.minResources.{error.field}") from None


def priority_class(spec: Mapping[str, Any]) -> Numbers:
    """`spec.priorityClassName`, which several dialects have."""
    name = spec.get("priorityClassName")
    return {"priority_class": name} if isinstance(name, str) else {}


def start_together(text: str | None, own: GroupKey, field: str = GROUPS_KEY) -> tuple[str, ...]:
    """Reads a JSON list of groups, which need not include `own`. Raises: ParseError, naming the field."""
    if not text:
        return ()
    try:
        names = _decode_names(text)
    except (bounded.TooLong, bounded.TooDeep) as error:
        raise ParseError(str(error), field=field) from None
    except msgspec.MsgspecError:
        raise ParseError(
            f'{text[:80]!r} is not a JSON list of groups, as ["team-a/train","team-a/data"]', field=field
        ) from None
    full = {name if "/" in name else f"{own.namespace}/{name}" for name in names} | {str(own)}
    if len(full) > MAX_START_TOGETHER:
        raise ParseError(
            f"{len(full)} groups start together, this one included; at most {MAX_START_TOGETHER} may",
            field=field,
        )
    return tuple(sorted(full)) if len(full) > 1 else ()


def _partial_bind(text: str | None) -> str:
    if text not in (None, "complete", "unwind"):
        raise ParseError(f"{text[:80]!r} is neither complete nor unwind", field=PARTIAL_BIND_KEY)
    return text or ""


def _disruption_mode(text: str | None) -> str:
    if text not in (None, SINGLE, ALL):
        raise ParseError(f"{text[:80]!r} is neither {SINGLE} nor {ALL}", field=DISRUPTION_KEY)
    return text or ""


def _recover_within_s(text: str | None) -> float | None:
    return None if text is None else parse_duration_s(text, RECOVER_WITHIN_KEY)


def _if_not_recovered(text: str | None) -> str:
    if text not in (None, STAY, MOVE, GIVE_BACK):
        raise ParseError(f"{text[:80]!r} is not one of stay, move, give-back", field=IF_NOT_RECOVERED_KEY)
    return text or ""


def device_failure(annotations: Metadata) -> str:
    """Reads what happens to the group when one of its devices fails. Raises: ParseError."""
    text = annotations.get(ON_DEVICE_FAILURE_KEY)
    if text not in (None, "none", "evictMember", "evictGang"):
        raise ParseError(
            f"{text[:80]!r} is not one of none, evictMember, evictGang", field=ON_DEVICE_FAILURE_KEY
        )
    return text or ""


def parse_duration_s(text: str, field: str) -> float:
    """Parses Go durations as people write them: "90s", "5m", "1h30m"; bare digits are seconds.

    Raises: ParseError, also for zero.
    """
    match = _DURATION.fullmatch(text)
    if not text or match is None:
        raise ParseError(f"{text[:80]!r} is not a duration; examples: 90s, 5m, 1h30m", field=field)
    hours, minutes, rest, bare = match.groups()
    seconds = int(hours or 0) * 3600 + int(minutes or 0) * 60 + float(rest or bare or 0)
    if seconds <= 0:
        raise ParseError(f"{text[:80]!r} is not a positive duration", field=field)
    return seconds
