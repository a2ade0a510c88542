"""The page about Kubernetes' own tests is what was run, and says what failed."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from gangsched.lab.controlplane.assets import KUBERNETES_VERSION
from tests.conformance.__main__ import PAGE, RESULTS
from tests.conformance.report import (
    SUITES,
    Found,
    Outcome,
    UnreadableReport,
    as_json,
    compared,
    from_json,
    lost,
    of_suite,
    page,
    read,
    summary,
)
from tests.conformance.tools import KWOK_VERSION, MODULE

PASSED, FAILED = Outcome(ended="passed"), Outcome(ended="failed", why="no | room")


def found(**ended: tuple[Outcome | None, Outcome | None]) -> Found:
    """By test: with kube-scheduler, with gangsched; None where it was not run."""
    both: dict[str, dict[str, Outcome]] = {"kube-scheduler": {}, "gangsched": {}}
    for name, outcomes in ended.items():
        for scheduler, outcome in zip(both, outcomes, strict=True):
            if outcome is not None:
                both[scheduler][name] = outcome
    return compared(both)


def test_the_page_is_of_the_last_run() -> None:
    kept = json.loads(RESULTS.read_text())
    assert PAGE.read_text(encoding="utf-8") == page(kept), "`make conformance`"
    assert [*kept] == [*SUITES]
    for suite in kept.values():
        assert suite["versions"]["Kubernetes"] == KUBERNETES_VERSION.removeprefix("v")


def test_dra_fares_as_with_kube_scheduler() -> None:
    """Every test that passes with it, though no kubelet takes part."""
    found = from_json(json.loads(RESULTS.read_text())["dra"])
    assert len(found) > 40
    assert not lost(found)


def test_what_is_run_is_what_is_pinned() -> None:
    pinned = (MODULE.directory / "go.mod").read_text()
    assert f"\tk8s.io/kubernetes {MODULE.version} " in pinned
    assert f"sigs.k8s.io/kwok {KWOK_VERSION} " in pinned


def test_a_report_is_read(tmp_path: Path) -> None:
    """What was filtered out is not there, what skips itself says why, a failure its first line."""
    cases = (
        '<testcase name="[BeforeSuite]"/>',
        '<testcase name="[It] [sig-node] other"/>',
        '<testcase name="[It] [sig-node] [DRA] control plane works [sig-node, DRA]"/>',
        '<testcase name="[It] [sig-scheduling] a [Serial] [sig-scheduling, Serial]"/>',
        '<testcase name="[It] [sig-scheduling] b"><failure message="timed out&#10;at x.go:1"/></testcase>',
        '<testcase name="[It] [sig-scheduling] c"><error message="interrupted"/></testcase>',
        '<testcase name="[It] [sig-scheduling] d"><skipped message="skipped"/></testcase>',
        '<testcase name="[It] [sig-scheduling] e"><skipped message="skipped - needs 2"/></testcase>',
    )
    report = tmp_path / "junit.xml"
    report.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert read(report) == {
        "[DRA] control plane works": PASSED,
        "a [Serial]": PASSED,
        "b": Outcome(ended="failed", why="timed out"),
        "c": Outcome(ended="failed", why="interrupted"),
        "e": Outcome(ended="skipped", why="needs 2"),
    }


@pytest.mark.parametrize("text", [None, "", "<testsuites><testcase", "<testsuites/>"])
def test_no_report_is_no_success(tmp_path: Path, text: str | None) -> None:
    report = tmp_path / "junit.xml"
    if text is not None:
        report.write_text(text)
    with pytest.raises(UnreadableReport):
        read(report)


def test_only_what_kube_scheduler_passes_can_be_lost() -> None:
    outcomes = found(
        both=(PASSED, PASSED),
        broke=(PASSED, FAILED),
        neither=(FAILED, FAILED),
        unknown=(PASSED, None),
        ours=(FAILED, PASSED),
        skipped=(PASSED, Outcome(ended="skipped", why="no")),
    )
    assert lost(outcomes) == ["broke", "skipped", "unknown"]
    assert summary(outcomes) == (
        "gangsched passes 2 of 6, kube-scheduler 4; 3 of those that pass with kube-scheduler do not"
        " with gangsched"
    )


def test_the_page_says_what_failed_and_why() -> None:
    outcomes = found(both=(PASSED, PASSED), broke=(PASSED, FAILED))
    text = page({"dra": as_json({"kwok": "0.8.0"}, outcomes)})
    assert "| broke | passed | failed |" in text
    assert "- broke\n    - gangsched: no \\| room\n" in text
    assert "did not pass" not in page({"dra": as_json({}, found(both=(PASSED, PASSED)))})


def test_each_test_is_of_one_suite() -> None:
    outcomes = compared({"gangsched": {"[DRA] control plane works": PASSED, "a [Serial]": PASSED}})
    assert [*of_suite("dra", outcomes)] == ["[DRA] control plane works"]
    assert [*of_suite("scheduling", outcomes)] == ["a [Serial]"]


def test_what_is_kept_is_what_was_found() -> None:
    outcomes = found(broke=(PASSED, FAILED), unknown=(PASSED, None))
    assert from_json(json.loads(json.dumps(as_json({}, outcomes)))) == outcomes
