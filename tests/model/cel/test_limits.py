"""Whatever an expression says, it ends: in an answer, or in an error that says where or why."""

from __future__ import annotations

from contextlib import suppress

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gangsched.model.cel.library import functions
from gangsched.model.cel.library.functions import FUNCTIONS
from gangsched.model.cel.selector import SelectableDevice, compile
from gangsched.model.cel.syntax import MAX_DEPTH
from gangsched.model.cel.values import STEP_LIMIT, SelectorError
from gangsched.model.resource_claims.objects import Attribute

DEVICE = SelectableDevice(
    "d",
    {"a": Attribute(string_value="aé"), "n": Attribute(int_value=-1), "v": Attribute(version_value="1.2.3")},
    {"m": "1Gi"},
)
TEN = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
TOO_MANY = f"takes more than {STEP_LIMIT} steps"


def rounds(body: str, n: int = 7, macro: str = "all") -> str:
    """The body within n macros of ten rounds each."""
    for level in range(n):
        body = f"{TEN}.{macro}(x{level}, {body})"
    return body


def doubled(last: str, made: str, n: int = 40) -> str:
    """`last` on x, after n times of binding x to `made` of itself."""
    return "cel.bind(x, ['ab'], " + f"cel.bind(x, {made}, " * n + last + ")" * (n + 1)


@pytest.mark.parametrize(
    "expression",
    [
        rounds("true"),
        rounds("false", macro="exists"),
        rounds("1 / 0 == 1"),
        rounds("int('1'.find('[0-9]*')) < 100"),
        rounds("ip('fd00::' + string(x0)).isLoopback() || true"),
        rounds("'%.9999f'.format([0.1]) != ''"),
        "lists.range(5000).distinct().size() > 0",
        "sets.contains(lists.range(5000), lists.range(5000))",
        "lists.range(100000).sort().size() > 0",
        "lists.range(500000).all(i, i in lists.range(500000))",
        doubled("x.size() > 0", "x + x"),
        doubled("x == [x[0], x[1]]", "[x, x]"),
        doubled("'%s'.format([x]) == ''", "[x, x]"),
        doubled("x.flatten(100).size() == 0", "[x, x]"),
        "cel.bind(x, lists.range(1000).map(i, 'a').join(), x.replace('a', x).replace('a', x) == '')",
        "cel.bind(x, lists.range(5000).map(i, 'a').join(), lists.range(5000).map(i, x).join(x) == '')",
    ],
)
def test_work_without_end_is_stopped(expression: str) -> None:
    with pytest.raises(SelectorError, match=TOO_MANY):
        compile(expression).matches(DEVICE)


def test_a_failing_loop_looks_a_function_up_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[functions.Kinds] = []
    fit = functions._fit

    def noted(takes: functions.Kinds, kinds: functions.Kinds) -> bool:
        looked_at.extend([takes] if kinds == (float, int) else [])
        return fit(takes, kinds)

    monkeypatch.setattr(functions, "_fit", noted)
    FUNCTIONS["%"]._refused.clear()
    with pytest.raises(SelectorError, match="% does not take"):
        compile(rounds("dyn(1.0) % 2 == 1", n=2)).matches(DEVICE)
    assert len(looked_at) == len(FUNCTIONS["%"]._overloads)


def test_of_what_a_function_does_not_take_little_is_remembered() -> None:
    for n in range(1, 3 * functions._MAX_REFUSED):
        with pytest.raises(SelectorError, match="indexOf does not take"):
            compile(f"'a'.indexOf({', '.join(['null'] * n)}) == 0").matches(DEVICE)
    assert len(FUNCTIONS["indexOf"]._refused) <= functions._MAX_REFUSED


def test_a_limit_cannot_be_caught() -> None:
    """`||` does without what fails, but not without an end."""
    with pytest.raises(SelectorError, match=TOO_MANY):
        compile(f"{rounds('true')} || true").matches(DEVICE)


def test_a_pattern_that_would_backtrack_for_ever_does_not() -> None:
    text = "lists.range(10000).map(i, 'a').join()"
    assert not compile(f"{text}.matches('^(a+)+$') && {text}.matches('^(a|a)*b$')").matches(DEVICE)


def test_a_pattern_too_large_is_an_error() -> None:
    with pytest.raises(SelectorError, match="is not a regular expression: pattern too large"):
        compile("'a'.matches('[\\\\pL]{1000}')").matches(DEVICE)


@pytest.mark.parametrize(
    "expression",
    [
        "(" * 3000 + "true" + ")" * 3000,
        "[" * 5000,
        "+".join(["1"] * 5000) + " > 0",
        "device" + ".a" * 4000,
        "true ? true : " * 500 + "true",
        "size(" * 1000 + "[]" + ")" * 1000 + " == 0",
    ],
)
def test_nesting_without_end_is_refused(expression: str) -> None:
    with pytest.raises(SelectorError, match=f"nested deeper than {MAX_DEPTH} levels"):
        compile(expression)


def test_long_and_flat_is_no_nesting() -> None:
    assert compile(" || ".join(["false"] * 1000 + ["true"])).matches(DEVICE)
    assert compile("!" * 10000 + "true").matches(DEVICE)


TOKENS = st.sampled_from(
    [
        *"()[]{}.,?:!-+*/%<>", "==", "!=", "&&", "||", "in", "true", "null", "1", "0", "-1", "2u", "1.5",
        "'a'", "b'a'", '"""', "r'", "'\\x", "`a`", "x", "device", "device.attributes['d']", ".?", "[?",
        "dyn(", "device.capacity['d'].m", ".exists(x, ", ".map(x, ", ".all(x, y, ", "cel.bind(x, ", "has(",
        "type(", ".format([", "size(", "quantity('1')", "semver('1.0.0')", "ip('::1')", "url('/a')",
        "duration('1s')", "timestamp(0)", "optional.of(", ".orValue(", ".matches(", ".split(", "lists.range(",
        " ", "//", "é", "\ud800",
    ]
)  # fmt: skip


@settings(max_examples=1500, deadline=None)
@given(st.one_of(st.lists(TOKENS, max_size=25).map("".join), st.text(max_size=60)))
def test_any_text_has_an_answer_or_an_error(expression: str) -> None:
    with suppress(SelectorError):
        assert compile(expression).matches(DEVICE) in (True, False)


VALUES = st.sampled_from(
    [
        "1", "-1", "2u", "1.5", "'a'", "'10Gi'", "b'\\xff'", "true", "null", "[]", "[1]", "['a', 1]", "{}",
        "{'a': 1}", "{true: [2]}", "duration('1s')", "timestamp(0)", "quantity('1')", "semver('1.0.0')",
        "ip('::1')", "'\ud83d'", "cidr('::/0')", "url('/a?b')", "format.uuid()", "optional.none()",
        "optional.of(1)", "int", "device", "device.attributes", "9223372036854775807", "-9223372036854775808",
        "double('NaN')", "'%s'",
    ]
)  # fmt: skip


@pytest.mark.long
@settings(max_examples=3000, deadline=None)
@given(name=st.sampled_from(sorted(FUNCTIONS)), values=st.lists(VALUES, max_size=4))
def test_any_function_takes_any_values_or_says_no(name: str, values: list[str]) -> None:
    """The API server checks types, but not those of what is read, or of `dyn`."""
    if name == "!" or (name == "-" and len(values) < 2):
        expression = f"{name}dyn({values[0] if values else 'x'})"
    elif not name[0].isalpha():
        expression = f"dyn({values[0] if values else 'x'}) {name} {values[-1] if values else 'x'}"
    elif "." in name or not values:
        expression = f"{name}({', '.join(values)})"
    else:
        expression = f"dyn({values[0]}).{name}({', '.join(values[1:])})"
    with suppress(SelectorError):
        assert compile(f"dyn({expression}) == 1").matches(DEVICE) in (True, False)
