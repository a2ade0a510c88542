"""The natural order of names, by which places of a gang are sorted."""

from __future__ import annotations

import pytest

from gangsched.model.text.natural import natural


@pytest.mark.parametrize(
    "names",
    [
        ["rack-2", "rack-10", "rack-100"],
        ["n1", "n2", "n10"],
        ["row1-n9", "row1-n10", "row2-n1", "row10-n1"],
        ["", "7", "10", "a", "a1", "a1b", "a2"],
        ["ip-10-0-12-7", "ip-10-0-2-9"],
        ["10.0.12.7", "10.0.2.9"],
        ["node-0f9e8d7c6b5a", "node-12ab34cd56ef", "node-9a8b7c6d5e4f"],
    ],
    ids=lambda names: names[-1],
)
def test_numbers_count_but_not_those_of_addresses_and_digests(names: list[str]) -> None:
    backwards = names[::-1]
    assert sorted(backwards, key=natural) == names
