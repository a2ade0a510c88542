"""Label and field selectors; each refusal is what kube-apiserver 1.37.1 said to a list with that query."""

from __future__ import annotations

import pytest

from gangsched.api_rules.selectors import LabelSelector
from gangsched.api_rules.status import StatusError
from gangsched.lab.apiserver.storage.selectors import FieldSelector, label_key_problem, label_selector

LABELS = {"app": "train", "tier": "gpu", "n": "8", "example.com/x": ""}


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("app=train", True),
        ("app==train,tier!=cpu", True),
        ("app=other", False),
        ("other!=x", True),
        ("app", True),
        ("!app", False),
        ("!other", True),
        ("app in (serve, train)", True),
        ("app notin (serve)", True),
        ("other notin (serve)", True),
        ("other in (,x)", False),
        ("example.com/x in ()", True),
        ("example.com/x=", True),
        ("example.com/x in (a,,b)", True),
        ("n>7", True),
        ("n<8", False),
        ("app>1", False),
        (" app = train , tier in ( gpu ) ", True),
        ("in=a", False),
        ("notin notin (in)", True),
    ],
)
def test_labels_match(text: str, matches: bool) -> None:
    assert label_selector(text).matches(LABELS) is matches


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a>",
            'unable to parse requirement: values[0]: Invalid value: "": '
            "for 'Gt', 'Lt' operators, the value must be an integer",
        ),
        ("a in x", "unable to parse requirement: found 'x' expected: '('"),
        ("a in (", "unable to parse requirement: found '', expected: ',', ')' or identifier"),
        ("a in", "unable to parse requirement: found '' expected: '('"),
        ("a in (x", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a in (x y)", "unable to parse requirement: found 'y', expected: ',' or ')'"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a b", "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt"),
        ("a=b,", "found '', expected: identifier after ','"),
        ("a,,b", "found ',', expected: identifier after ','"),
        ("!", "unable to parse requirement: found '', expected: identifier"),
        ("a=b c", "found 'c', expected: ',' or 'end of string'"),
        ("!a=b", "found '=', expected: ',' or 'end of string'"),
        ("a=(b)", "unable to parse requirement: found '(', expected: identifier"),
        ("a===", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a=-b",
            'unable to parse requirement: values[0][a]: Invalid value: "-b": a valid label must be an empty '
            "string or consist of alphanumeric characters, '-', '_' or '.', and must start and end with an "
            "alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation "
            "is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')",
        ),
        (
            "-a=b",
            'unable to parse requirement: <nil>: Invalid value: "-a": name part must consist of alphanumeric '
            "characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. "
            "'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
            "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')",
        ),
        (
            "a=" + "y" * 64,
            f'unable to parse requirement: values[0][a]: Invalid value: "{"y" * 64}": '
            "must be no more than 63 bytes",
        ),
    ],
)
def test_a_label_selector_is_refused(text: str, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        label_selector(text)
    assert (refused.value.code, refused.value.message) == (400, said)


def test_a_selector_of_an_object_matches_nothing_where_there_is_none() -> None:
    assert LabelSelector.of_object(None) is None
    empty = LabelSelector.of_object({})
    assert empty is not None
    assert empty.matches({})
    both = LabelSelector.of_object(
        {
            "matchLabels": {"app": "train"},
            "matchExpressions": [{"key": "tier", "operator": "NotIn", "values": ["cpu"]}],
        }
    )
    assert both is not None
    assert both.matches(LABELS)
    assert not both.matches({"app": "train", "tier": "cpu"})


@pytest.mark.parametrize(
    ("text", "matches"),
    [
        ("", True),
        ("metadata.name=a", True),
        ("metadata.name==a,spec.nodeName=", True),
        ("metadata.name!=a", False),
        ("spec.nodeName!=x,,metadata.name=a", True),
        (r"metadata.name=a\,b", False),
    ],
)
def test_fields_match(text: str, matches: bool) -> None:
    assert FieldSelector.parse(text).matches({"metadata.name": "a"}) is matches


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("spec.foo=a", "field label not supported: spec.foo"),
        ("=a", "field label not supported: "),
        ("foo", "invalid selector: 'foo'; can't understand 'foo'"),
        ("metadata.name<a", "invalid selector: 'metadata.name<a'; can't understand 'metadata.name<a'"),
        ("metadata.name=a=b", "invalid field selector: unescaped character in value: 61"),
        ("metadata.name=a\\", "invalid field selector: invalid escape sequence: \\"),
    ],
)
def test_a_field_selector_is_refused(text: str, said: str) -> None:
    with pytest.raises(StatusError) as refused:
        FieldSelector.parse(text, ("metadata.name", "metadata.namespace"))
    assert (refused.value.code, refused.value.message) == (400, said)


def test_an_index_can_ask_for_the_exact_value() -> None:
    selector = FieldSelector.parse("spec.nodeName=n1,metadata.name!=a")
    assert selector.exact("spec.nodeName") == "n1"
    assert selector.exact("metadata.name") is None


def test_keys_of_labels_are_checked() -> None:
    assert label_key_problem("example.com/name") == ""
    assert label_key_problem("/name").startswith("prefix part must be non-empty")
    assert label_key_problem("a/b/c").startswith("a valid label key must consist of")
    assert label_key_problem("Example.com/a").startswith("prefix part a lowercase RFC 1123 subdomain")
