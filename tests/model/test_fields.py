"""The search for fields that a kind is not known to have, and what a hostile object costs it."""

from __future__ import annotations

from typing import Any

import pytest

from gangsched.errors import ParseError
from gangsched.model.fields import Fields, Known

KNOWN = Known(
    Fields(
        read=("spec.least", "spec.parts[].name", "spec.policy.gang.least"),
        without_effect={"spec.template.**": "only a name", "spec.queue": "ours are elsewhere"},
        refused={"spec.parent": "no trees"},
        wishes={"spec.delay": "no delay"},
    )
)


@pytest.mark.parametrize(
    ("spec", "named"),
    [
        ({}, []),
        ({"least": 3, "queue": "q", "template": {"anything": {"at": ["all"]}}, "parts": []}, []),
        ({"least": 3, "later": None}, []),
        ({"later": {}}, ["spec.later"]),
        ({"later": False}, ["spec.later"]),
        ({"policy": {"elastic": {}}}, ["spec.policy.elastic"]),
        ({"policy": {"gang": {"least": 1, "most": 2}}}, ["spec.policy.gang.most"]),
        ({"parts": [{"name": "a"}, {"name": "b", "most": 2}]}, ["spec.parts[1].most"]),
        ({"parts": {"name": "a"}}, ["spec.parts.name"]),
        ({"parent": ""}, []),
        ({"parent": "root"}, ["spec.parent"]),
        ({"a": 1, "b": 1, "c": 1, "d": 1}, ["spec.a", "spec.b", "spec.c"]),
    ],
)
def test_what_is_in_no_list_is_named_with_its_place(spec: dict[str, Any], named: list[str]) -> None:
    assert [one.partition(":")[0] for one in KNOWN.search(spec).unsupported] == named


def test_a_wish_holds_nothing() -> None:
    assert KNOWN.search({"delay": "5s"}) == ((), ("spec.delay: no delay",))
    assert KNOWN.search({"delay": ""}) == ((), ())


def test_a_huge_object_is_not_walked_to_its_end() -> None:
    class Counted(list[Any]):
        n_read = 0

        def __iter__(self) -> Any:
            for one in super().__iter__():
                Counted.n_read += 1
                yield one

    with pytest.raises(ParseError, match="more than 20000 fields"):
        KNOWN.search({"parts": Counted([{"name": "a"}] * 300_000)})
    assert Counted.n_read <= 20_001
    assert len(KNOWN.search({f"k{i}": 1 for i in range(300_000)}).unsupported) == 3
    # What decides nothing is not looked at.
    assert KNOWN.search({"template": {"a": Counted([1] * 300_000)}}).unsupported == ()
    assert Counted.n_read <= 20_001


def test_a_long_name_is_cut() -> None:
    (told,) = KNOWN.search({"x" * 100_000: 1}).unsupported
    assert len(told) < 400
