"""The nearest name for a slip of the pen; none for a name that is simply not there."""

from __future__ import annotations

import pytest

from gangsched.reading.strict import nearest

NODES = [*(f"node-{i:02}" for i in range(16)), "worker-1"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("node-99", ""),
        ("node-16", ""),
        ("nodes", ""),
        ("node-xyz", ""),
        ("foo", ""),
        ("nod-03", "node-03"),
        ("node-3", "node-03"),
        ("Node-03", "node-03"),
        ("worker-l", "worker-1"),
    ],
)
def test_a_slip_is_distinguished_from_another_name(name: str, meant: str) -> None:
    assert nearest(name, NODES) == (f"; did you mean {meant}?" if meant else "")


def test_the_beginning_of_a_long_field_is_enough() -> None:
    assert "preferredDuringSchedulingIgnoredDuringExecution?" in nearest(
        "preferredDuringScheduling", ["preferredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"]
    )
