"""How long and how deep JSON from outside may be: counted before anything walks it, told with its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gangsched.agent.sources.device_file import parse_device_file
from gangsched.agent.sources.registers import parse_hami
from gangsched.errors import ConfigError, ParseError
from gangsched.kube.status import api_error
from gangsched.lab.sim.objects import make_pod
from gangsched.model.devices.annotations import parse_allocation, parse_inventory
from gangsched.model.devices.constraints import CONSTRAINTS_KEY, parse_constraints
from gangsched.model.devices.report import parse_report
from gangsched.model.objects import Pod
from gangsched.model.pod_group import GROUPS_KEY, MIN_MEMBERS_KEY, GroupKey, group_from_pod
from gangsched.model.stated.bandwidth import parse_remaining
from gangsched.model.stated.load import parse_load, parse_node_metrics
from gangsched.model.text import bounded

DEEP = 20_000
Tree = dict[str, Any] | list[Any] | str | int | None
# Strings with everything that could be taken for a bracket or for the end of a string.
texts = st.text(alphabet='ab{}[]"\\,:\n\u00e9', max_size=8)
trees: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.integers() | texts,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(texts, inner, max_size=4),
    max_leaves=30,
)


def levels(tree: Any) -> int:
    if isinstance(tree, dict):
        return 1 + max(map(levels, tree.values()), default=0)
    return 1 + max(map(levels, tree), default=0) if isinstance(tree, list) else 0


def emptied(tree: Any, depth: int) -> Any:
    """The rule in words of its own: at the last level whoever holds a container is emptied."""
    if not isinstance(tree, dict | list):
        return tree
    inner = list(tree.values()) if isinstance(tree, dict) else tree
    if depth == 1 and any(isinstance(one, dict | list) for one in inner):
        return type(tree)()
    if isinstance(tree, dict):
        return {key: emptied(value, depth - 1) for key, value in tree.items()}
    return [emptied(value, depth - 1) for value in tree]


def nested(n: int, *, key: str = "a") -> str:
    return ('{"' + key + '":') * n + "{}" + "}" * n


@given(trees, st.integers(1, 6))
def test_depth_is_counted_outside_of_strings_only(tree: Tree, limit: int) -> None:
    text = json.dumps(tree, ensure_ascii=False)
    assert bounded.is_deep(text.encode(), limit) == (levels(tree) > limit)
    shallow, what = bounded.emptied_below(text, limit)
    assert json.loads(shallow) == emptied(tree, limit)
    assert bool(what) == (levels(tree) > limit)


def test_lines_of_json_are_emptied_each_for_itself() -> None:
    deep, flat = nested(DEEP), '{"a":{"b":[1]}}'
    shallow, _ = bounded.emptied_below(f"{flat}\n{deep}\n{flat}\n")
    first, second, third = shallow.decode().splitlines()
    assert (first, third) == (flat, flat)
    assert levels(json.loads(second)) == bounded.MAX_DEPTH


def test_too_deep_nesting_is_reported_with_its_place() -> None:
    text = f'{{"metadata":{{"name":"x"}},"spec":{{"list":[{nested(70)}]}}}}'
    with pytest.raises(bounded.TooDeep, match=r"nested too deeply: 74 levels at spec\.list\.a\.a\.a\.a…, at"):
        bounded.decoder(dict[str, Any])(text)


def test_a_text_that_is_too_long_is_not_parsed() -> None:
    with pytest.raises(bounded.TooLong, match="has 300000 characters, at most 262144"):
        bounded.decoder(dict[str, Any])("[" * 300_000)


def group_of(groups: str) -> object:
    pod = make_pod("p", annotations={GROUPS_KEY: groups, MIN_MEMBERS_KEY: "1"})
    return group_from_pod(GroupKey("gangsched", "d", "g"), pod)


READERS: list[tuple[Callable[[str], object], str]] = [
    (parse_constraints, CONSTRAINTS_KEY),
    (parse_inventory, "gangsched.io/devices"),
    (parse_allocation, "gangsched.io/allocated-devices"),
    (parse_report, "gangsched.io/device-report"),
    (parse_remaining, "gangsched.io/remaining-bandwidth"),
    (parse_load, "gangsched.io/load"),
    (lambda text: parse_node_metrics(text.encode()), "metrics.k8s.io"),
    (group_of, GROUPS_KEY),
    (lambda text: parse_hami(f"[{text}]"), ""),
]


@pytest.mark.parametrize(("read", "field"), READERS, ids=[field or "hami" for _, field in READERS])
@pytest.mark.parametrize("text", [nested(1_200), "[" * 5_000, nested(200, key="nvidia.com/gpu")])
def test_every_reader_of_peoples_text_reports_too_deep_nesting(
    read: Callable[[str], object], field: str, text: str
) -> None:
    with pytest.raises(ParseError) as caught:
        read(text)
    assert "nested too deeply" in str(caught.value) or "has " in str(caught.value)
    assert field in str(caught.value)
    assert len(str(caught.value)) < 500


def test_a_file_of_devices_that_is_nested_too_deep_is_reported() -> None:
    with pytest.raises(ConfigError, match=r"nested too deeply: 1201 levels at a\.a\.a"):
        parse_device_file(nested(1_200))


def test_a_page_of_a_proxy_is_quoted_however_deep_it_is() -> None:
    error = api_error(502, None, b"[" * 100_000)
    assert error.code == 502
    assert "[[[" in error.message


def test_a_pod_is_read_without_its_parts_that_are_nested_too_deep() -> None:
    text = f'{{"metadata":{{"name":"p","managedFields":[{{"fieldsV1":{nested(DEEP)}}}]}},"spec":{{}}}}'
    pod = bounded.lenient_decoder(Pod)(text)
    assert pod.metadata.name == "p"


def test_bytes_that_are_no_text_are_rejected_alike() -> None:
    for decode in (bounded.decoder(list[str]), bounded.lenient_decoder(list[str])):
        with pytest.raises(msgspec.DecodeError, match="not UTF-8 text"):
            decode(b'["\xff"]')


def test_text_that_is_not_json_is_still_rejected() -> None:
    for text in ("]" * 5_000, "[" * 5_000, '{"a":' * 5_000, "}{" * 5_000):
        with pytest.raises(msgspec.MsgspecError):
            bounded.lenient_decoder(Pod)(text)
