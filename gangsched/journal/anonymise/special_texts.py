"""Texts with letters or digits that are not words: times, UUIDs, digests and addresses.

Lives here: finding them, and replacing addresses. Not here: splitting the rest (renaming, which calls this).
"""

from __future__ import annotations

import re
from collections.abc import Set

from gangsched.journal.anonymise.ordered_names import in_base

_CLOCK = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIGEST = r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{12,}"
_IP = r"(?<![0-9]\.)[0-9]{1,3}(?:\.[0-9]{1,3}){3}(?!\.[0-9])"
# As AWS names nodes.
_DASHED = r"(?:(?<=^ip-)|(?<=[^0-9A-Za-z]ip-))[0-9]{1,3}(?:-[0-9]{1,3}){3}(?!-)"
_GROUPS = r"[0-9A-Fa-f]{1,4}(?::[0-9A-Fa-f]{1,4}){0,6}"
_IP6 = (
    rf"(?<!:)(?:{_GROUPS}::(?:{_GROUPS})?|::{_GROUPS}|(?:[0-9A-Fa-f]{{1,4}}:){{7}}[0-9A-Fa-f]{{1,4}})"
    r"(?!:|\.[0-9])"
)
_MAC = r"(?<!:)(?:[0-9A-Fa-f]{2}:){5}[0-9A-Fa-f]{2}(?!:)"
SPECIAL = re.compile(
    rf"(?P<time>{_CLOCK})"
    rf"|(?<![0-9A-Za-z])(?P<hex>{_UUID}|{_UUID.replace('a-f', 'A-F')}|{_DIGEST})(?![0-9A-Za-z])"
    rf"|(?<![0-9A-Za-z])(?P<address>{_IP}|{_DASHED}|{_MAC}|{_IP6})(?![0-9A-Za-z])"
)
"""Groups: time, hex and address."""
_HEX = "0123456789abcdef"
# Octets of three digits: 3.8 million addresses that sort like their texts.
_OCTETS = range(100, 256)


def new_addresses(met: Set[str]) -> dict[str, str]:
    """Returns for each a private address of the same form, keeping the text order within a form: nodes and
    domains may be named by addresses, and ties are broken by names.
    """
    dotted = {one: one.replace("-", ".") for one in met if ":" not in one}
    new = {one: _ip(at) for at, one in enumerate(sorted(set(dotted.values())))}
    found = {one: new[plain].replace(".", "-" if "-" in one else ".") for one, plain in dotted.items()}
    for at, one in enumerate(sorted(met - dotted.keys())):
        number = in_base(at, _HEX, 8)
        is_mac = re.fullmatch(_MAC, one) is not None
        size = 2 if is_mac else 4
        groups = ":".join(number[k : k + size] for k in range(0, len(number), size))
        found[one] = f"{'02:00:' if is_mac else 'fd00::'}{groups}"
    return found


def _ip(at: int) -> str:
    n = len(_OCTETS)
    return ".".join(str(one) for one in (10, *(_OCTETS[at // n**k % n] for k in (2, 1, 0))))
