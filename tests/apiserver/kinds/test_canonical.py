"""Quantities as a real kube-apiserver 1.37.1 printed them in a node's capacity (recorded/quantities.json)."""

from __future__ import annotations

import json

import pytest

from gangsched.api_rules.canonical import quantity, tidy
from gangsched.api_rules.schema.quantities import BadText
from tests.apiserver.kinds.recording import RECORDED

PRINTED: dict[str, str] = json.loads((RECORDED / "quantities.json").read_text())
LONG = "9" * 1_100_000


@pytest.mark.parametrize(("given", "printed"), PRINTED.items())
def test_a_quantity_is_printed_as_the_real_server_prints_it(given: str, printed: str) -> None:
    assert quantity(given).text == printed


def test_quantities_are_equal_by_value() -> None:
    assert quantity("1000m") == quantity("1")
    assert quantity("1Ki") == quantity("1.024k")
    assert quantity("1Gi") != quantity("1G")


@pytest.mark.parametrize("given", ["", "lots", "1 Gi", "--1", "1.2.3", "."])
def test_what_is_not_a_quantity_is_refused(given: str) -> None:
    with pytest.raises(BadText, match="quantities must match the regular expression"):
        quantity(given)


@pytest.mark.parametrize(
    "given",
    ["1KK", "1e2147483648", "1e-2147483648", "1e" + "9" * 5000, "99e999999", LONG, LONG + "Ki"],
    ids=lambda given: given[:15],
)
def test_a_suffix_that_nobody_knows_or_can_reckon_with_is_refused(given: str) -> None:
    with pytest.raises(BadText, match="unable to parse quantity's suffix"):
        quantity(given)


def test_what_says_nothing_is_left_out_and_what_is_in_a_map_stays() -> None:
    obj = {
        "a": None,
        "b": [],
        "c": "",
        "stdin": False,
        "replicas": 0,
        "emptyDir": {},
        "limits": {},
        "labels": {"x": ""},
        "containers": [{"name": "c", "args": None}],
    }
    tidy(obj)
    assert obj == {
        "replicas": 0,
        "emptyDir": {},
        "labels": {"x": ""},
        "containers": [{"name": "c"}],
    }
