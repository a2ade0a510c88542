"""What pods ask for and nodes have left, as their annotations say it."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from gangsched.errors import ParseError
from gangsched.model.stated.bandwidth import (
    BandwidthRequest,
    RemainingBandwidth,
    mbps,
    parse_bandwidth,
    parse_remaining,
    parse_request,
    remaining_annotation,
)

MB = 10**6
NOW = datetime(2026, 5, 4, 12, 0, 0, 250_000, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "amount"),
    [
        ("100MB/s", 100 * MB),
        ("1.5GB/s", 1500 * MB),
        ("0.5 MB/s", 500_000),
        ("100MBps", 100 * MB),
        ("800Mbit/s", 100 * MB),
        ("1Gbps", 125 * MB),
        ("1MiB/s", 2**20),
        ("3bit/s", 1),
        ("0MB/s", 0),
    ],
)
def test_amounts(text: str, amount: int) -> None:
    assert parse_bandwidth(text) == amount


@pytest.mark.parametrize(
    "text", ["", "100", "MB/s", "-5MB/s", "1e3MB/s", "100MB", "100 mb/s", "∞MB/s", "9" * 40 + "B/s"]
)
def test_an_invalid_amount_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ParseError, match="is not a bandwidth; examples: 100MB/s"):
        parse_bandwidth(text)


def test_more_than_any_link_has_is_another_unit_than_was_meant() -> None:
    with pytest.raises(ParseError, match="is more than any link has"):
        parse_bandwidth("2000000GB/s")


def test_a_pod_without_annotations_requests_nothing() -> None:
    assert parse_request(None) is None
    assert parse_request({"team": "a"}) is None


def test_required_and_expected_in_either_spelling() -> None:
    ours = parse_request({"gangsched.io/required-rbw": "400MB/s", "gangsched.io/expected-rbw": "500MB/s"})
    plain = parse_request({"requiredRBW": "400MB/s", "expectedRBW": "500MB/s"})
    assert ours == plain == BandwidthRequest(400 * MB, 500 * MB, "both")


def test_one_amount_alone() -> None:
    assert parse_request({"requiredRBW": "5MB/s"}) == BandwidthRequest(5 * MB, 5 * MB)
    assert parse_request({"expectedRBW": "5MB/s"}) == BandwidthRequest(0, 5 * MB)


def test_directions() -> None:
    asked = {"requiredRBW": "5MB/s", "gangsched.io/rbw-direction": "egress"}
    found = parse_request(asked)
    assert found is not None
    assert found.amounts == (5 * MB, 0, 5 * MB)
    for direction, amounts in (("ingress", (0, 5, 5)), ("both", (5, 5, 10)), ("total", (5, 5, 5))):
        found = parse_request({**asked, "gangsched.io/rbw-direction": direction})
        assert found is not None
        assert found.amounts == tuple(amount * MB for amount in amounts), direction


@pytest.mark.parametrize(
    ("annotations", "message"),
    [
        (
            {"gangsched.io/required-rbw": "500MB/s", "gangsched.io/expected-rbw": "400MB/s"},
            "gangsched.io/expected-rbw: '400MB/s' is below gangsched.io/required-rbw, '500MB/s'",
        ),
        (
            {"gangsched.io/required-rbw": "500MB/s", "expectedRBW": "400MB/s"},
            "expectedRBW: '400MB/s' is below gangsched.io/required-rbw, '500MB/s'",
        ),
        ({"requiredRBW": "lots"}, "requiredRBW: 'lots' is not a bandwidth"),
        (
            {"requiredRBW": "1MB/s", "gangsched.io/required-rbw": "2MB/s"},
            "requiredRBW: differs from gangsched.io/required-rbw",
        ),
        (
            {"requiredRBW": "1MB/s", "gangsched.io/rbw-direction": "up"},
            "gangsched.io/rbw-direction: 'up' is not egress, ingress, both or total",
        ),
        ({"gangsched.io/rbw-direction": "egress"}, "gangsched.io/rbw-direction: is given without"),
        (
            {"requiredRBW": "1MB/s", "gangsched.io/rbw-scope": "pod"},
            "gangsched.io/rbw-scope: 'pod' is neither member nor group",
        ),
    ],
)
def test_mistakes_name_their_annotation(annotations: dict[str, str], message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_request(annotations)
    assert str(caught.value).startswith(message)


def test_a_groups_amount_is_shared_and_rounded_up() -> None:
    whole = BandwidthRequest(100, 200, "both", "group")
    assert whole.share(3) == BandwidthRequest(34, 67)
    assert BandwidthRequest(100, 200).share(3) == BandwidthRequest(100, 200)


def test_the_node_annotation_reads_back_what_was_written() -> None:
    there = RemainingBandwidth(900 * MB, 850 * MB + 500_000, 1500 * MB, NOW)
    text = remaining_annotation(there)
    assert text == (
        '{"egressMBps":900,"ingressMBps":850.5,"totalMBps":1500,"observedAt":"2026-05-04T12:00:00.250Z"}'
    )
    assert parse_remaining(text) == there
    longer = remaining_annotation(there, {"60s": (12.5 * MB, 0.0)})
    assert '"usedMBps":{"60s":{"egress":12.5,"ingress":0}}' in longer
    assert parse_remaining(longer) == there


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "gangsched.io/remaining-bandwidth: "),
        ("{}", "gangsched.io/remaining-bandwidth: Object missing required field"),
        (
            '{"egressMBps":-1,"ingressMBps":1,"totalMBps":2,"observedAt":"2026-05-04T12:00:00Z"}',
            "gangsched.io/remaining-bandwidth: egressMBps: -1 is not within 0..",
        ),
        (
            '{"egressMBps":1,"ingressMBps":3,"totalMBps":2,"observedAt":"2026-05-04T12:00:00Z"}',
            "gangsched.io/remaining-bandwidth: ingressMBps: 3 is more than totalMBps, 2",
        ),
        (
            '{"egressMBps":1,"ingressMBps":1,"totalMBps":2,"observedAt":"2026-05-04T12:00:00"}',
            "gangsched.io/remaining-bandwidth: observedAt: has no time zone",
        ),
        ("[" * 100_000, "gangsched.io/remaining-bandwidth: "),
    ],
)
def test_a_node_annotation_that_cannot_be_used(text: str, message: str) -> None:
    with pytest.raises(ParseError) as caught:
        parse_remaining(text)
    assert str(caught.value).startswith(message)


def test_amounts_for_people() -> None:
    assert mbps(900 * MB) == "900"
    assert mbps(12_500_000) == "12.5"
