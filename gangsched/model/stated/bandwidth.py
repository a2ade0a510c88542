"""Remaining bandwidth: a node's annotation with what is left, a pod's annotations with its request.

Lives here: the values and their parsing, with the place of every mistake. Not here: measuring (agent.probes)
and reservations (core.cache.nodes.usage_trackers). Unit inside: integer bytes a second; MB is 10^6 bytes.
Source of required and expected: the published method of scheduling by remaining available bandwidth. Formats:
wire.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from decimal import ROUND_CEILING, Decimal
from typing import Literal, get_args

import msgspec

from gangsched.errors import ParseError
from gangsched.model.text import bounded

REMAINING_KEY = "gangsched.io/remaining-bandwidth"
REQUIRED_KEY = "gangsched.io/required-rbw"
EXPECTED_KEY = "gangsched.io/expected-rbw"
DIRECTION_KEY = "gangsched.io/rbw-direction"
SCOPE_KEY = "gangsched.io/rbw-scope"
PLAIN_REQUIRED, PLAIN_EXPECTED = "requiredRBW", "expectedRBW"
REQUEST_KEYS = frozenset(
    (REQUIRED_KEY, EXPECTED_KEY, DIRECTION_KEY, SCOPE_KEY, PLAIN_REQUIRED, PLAIN_EXPECTED)
)
"""All keys on a pod; a pod without any of them requests no bandwidth."""

Direction = Literal["egress", "ingress", "both", "total"]
"""`both`: in each direction; `total`: in and out together, against the link's total."""
Scope = Literal["member", "group"]
MEGABYTE = 10**6
# A link of 10 Tbit/s; a larger value is probably in a wrong unit.
MAX_BANDWIDTH = 1_250_000 * MEGABYTE
_AMOUNT = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?) ?([A-Za-z]{1,6}(?:/s)?)")
_MAX_SHOWN = 60

_BYTES = {
    "B": 1,
    "kB": 10**3,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KiB": 2**10,
    "MiB": 2**20,
    "GiB": 2**30,
}
_BITS = {"bit": 1, "kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9}
_UNITS: dict[str, Decimal] = {
    **{f"{name}/s": Decimal(size) for name, size in _BYTES.items()},
    **{f"{name}/s": Decimal(size) / 8 for name, size in _BITS.items()},
    **{f"{name}ps": Decimal(size) for name, size in _BYTES.items()},
    **{f"{letter}bps": Decimal(size) / 8 for letter, size in (("k", 10**3), ("M", 10**6), ("G", 10**9))},
}


class RemainingBandwidth(msgspec.Struct, frozen=True, gc=False):
    """What a node had left when it was measured, bytes a second; `total` is one direction's."""

    egress: int
    ingress: int
    total: int
    observed_at: datetime


class BandwidthRequest(msgspec.Struct, frozen=True, gc=False):
    """A pod's request, bytes a second in each of its directions. required <= expected.

    scope `group`: the amounts are for the whole gang, shared equally among its members.
    """

    required: int
    expected: int
    direction: Direction = "both"
    scope: Scope = "member"

    @property
    def amounts(self) -> tuple[int, int, int]:
        """Returns what to reserve: egress, ingress, and the sum for a shared total.

        With `total`, either direction may end up carrying all of it.
        """
        egress = self.required if self.direction != "ingress" else 0
        ingress = self.required if self.direction != "egress" else 0
        return egress, ingress, self.required if self.direction == "total" else egress + ingress

    def share(self, n_members: int) -> BandwidthRequest:
        """One member's part, rounded up."""
        if self.scope == "member" or n_members <= 1:
            return msgspec.structs.replace(self, scope="member")
        required, expected = (-(-amount // n_members) for amount in (self.required, self.expected))
        return BandwidthRequest(required, expected, self.direction)


class _Remaining(msgspec.Struct, frozen=True, rename="camel"):
    egress: float = msgspec.field(name="egressMBps")
    ingress: float = msgspec.field(name="ingressMBps")
    total: float = msgspec.field(name="totalMBps")
    observed_at: datetime


_decode_remaining = bounded.decoder(_Remaining)


def parse_bandwidth(text: str, *, field: str = "") -> int:
    """ "100MB/s" as bytes a second, rounded up. Raises: ParseError."""
    found = _AMOUNT.fullmatch(text.strip())
    unit = _UNITS.get(found.group(2)) if found is not None else None
    if found is None or unit is None:
        raise ParseError(
            f"{text[:_MAX_SHOWN]!r} is not a bandwidth; examples: 100MB/s, 1.5GB/s, 800Mbit/s", field=field
        )
    amount = int((Decimal(found.group(1)) * unit).to_integral_value(rounding=ROUND_CEILING))
    if amount > MAX_BANDWIDTH:
        raise ParseError(
            f"{text[:_MAX_SHOWN]!r} is more than any link has ({mbps(MAX_BANDWIDTH)} MB/s)", field=field
        )
    return amount


def parse_request(annotations: Mapping[str, str] | None) -> BandwidthRequest | None:
    """The request in a pod's annotations; None: none. Raises: ParseError, naming the annotation.

    With only required, expected equals it; with only expected, nothing is required.
    """
    if not annotations or REQUEST_KEYS.isdisjoint(annotations):
        return None
    required_key, required = _amount(annotations, REQUIRED_KEY, PLAIN_REQUIRED)
    expected_key, expected = _amount(annotations, EXPECTED_KEY, PLAIN_EXPECTED)
    direction = annotations.get(DIRECTION_KEY, "both")
    if direction not in get_args(Direction):
        raise ParseError(
            f"{direction[:_MAX_SHOWN]!r} is not egress, ingress, both or total", field=DIRECTION_KEY
        )
    scope = annotations.get(SCOPE_KEY, "member")
    if scope not in ("member", "group"):
        raise ParseError(f"{scope[:_MAX_SHOWN]!r} is neither member nor group", field=SCOPE_KEY)
    if required is None and expected is None:
        which = DIRECTION_KEY if DIRECTION_KEY in annotations else SCOPE_KEY
        raise ParseError(
            f"is given without {REQUIRED_KEY} and {EXPECTED_KEY}: how much is asked for?", field=which
        )
    if required is not None and expected is not None and expected < required:
        raise ParseError(
            f"{annotations[expected_key][:_MAX_SHOWN]!r} is below {required_key},"
            f" {annotations[required_key][:_MAX_SHOWN]!r}: what is expected is at least what is required",
            field=expected_key,
        )
    least = required or 0
    most = least if expected is None else expected
    return BandwidthRequest(least, most, direction, scope)  # type: ignore[arg-type]


def _amount(annotations: Mapping[str, str], key: str, plain: str) -> tuple[str, int | None]:
    """(the key in use, the amount); both spellings at once must agree."""
    found = [
        (name, parse_bandwidth(annotations[name], field=name)) for name in (key, plain) if name in annotations
    ]
    if len(found) == 2 and found[0][1] != found[1][1]:
        raise ParseError(f"differs from {key}; leave one of them out", field=plain)
    return found[0] if found else (key, None)


def parse_remaining(text: str) -> RemainingBandwidth:
    """A node's annotation. Raises: ParseError, naming it."""
    try:
        found = _decode_remaining(text)
    except msgspec.MsgspecError as error:
        raise ParseError(_one_line(error), field=REMAINING_KEY) from None
    amounts = {"egressMBps": found.egress, "ingressMBps": found.ingress, "totalMBps": found.total}
    for name, amount in amounts.items():
        if not 0 <= amount * MEGABYTE <= MAX_BANDWIDTH:
            raise ParseError(
                f"{name}: {amount:g} is not within 0..{mbps(MAX_BANDWIDTH)}", field=REMAINING_KEY
            )
        if amount > found.total:
            raise ParseError(
                f"{name}: {amount:g} is more than totalMBps, {found.total:g}", field=REMAINING_KEY
            )
    if found.observed_at.tzinfo is None:
        raise ParseError("observedAt: has no time zone; Z is UTC", field=REMAINING_KEY)
    egress, ingress, total = (int(amount * MEGABYTE) for amount in amounts.values())
    return RemainingBandwidth(egress, ingress, total, found.observed_at)


def remaining_annotation(
    remaining: RemainingBandwidth, used: Mapping[str, tuple[float, float]] | None = None
) -> str:
    """Returns the annotation that the agent writes; parse_remaining reads it back, to a tenth of an MB/s.

    used: window name -> (egress, ingress) over that longer window, for people; no decision depends on it.
    """
    document: dict[str, object] = {
        "egressMBps": _rounded(remaining.egress),
        "ingressMBps": _rounded(remaining.ingress),
        "totalMBps": _rounded(remaining.total),
        "observedAt": utc_text(remaining.observed_at),
    }
    if used:
        document["usedMBps"] = {
            name: {"egress": _rounded(round(egress)), "ingress": _rounded(round(ingress))}
            for name, (egress, ingress) in used.items()
        }
    return msgspec.json.encode(document).decode()


def mbps(amount: float) -> str:
    """Bytes a second as MB/s, for people: "900", "12.5"."""
    return f"{amount / MEGABYTE:.1f}".removesuffix(".0")


def utc_text(when: datetime) -> str:
    """Formats a time as Kubernetes does, with milliseconds."""
    return when.strftime("%Y-%m-%dT%H:%M:%S.") + f"{when.microsecond // 1000:03d}Z"


def _rounded(amount: int) -> float | int:
    tenths = amount * 10 // MEGABYTE
    return tenths // 10 if tenths % 10 == 0 else tenths / 10


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split())[:200]
