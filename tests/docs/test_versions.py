"""The table of Kubernetes versions is what was run, and says what failed."""

from __future__ import annotations

import json
from pathlib import Path

from gangsched.lab.controlplane.assets import KUBERNETES_VERSION
from gangsched.lab.controlplane.processes import minor_version
from tests.versions import PAGE, RESULTS, SUITES, VERSIONS, counted, table, with_table


def test_the_table_is_of_the_last_runs() -> None:
    results = json.loads(RESULTS.read_text())
    page = PAGE.read_text(encoding="utf-8")
    assert with_table(page, table(results)) == page, "`make versions` writes it"
    assert set(results) == set(VERSIONS), "each release that is told was run"
    assert KUBERNETES_VERSION in results
    assert all(set(found) == set(SUITES) for found in results.values())


def test_what_was_not_run_and_what_failed_is_reported() -> None:
    passed = {"passed": 3, "skipped": 0, "failed": []}
    failed = {"passed": 2, "skipped": 1, "failed": ["test_a::test_b"]}
    none = {"passed": 0, "skipped": 4, "failed": []}
    [_, _, line] = table({"v1.30.1": dict(zip(SUITES, (passed, failed, none), strict=False))}).splitlines()
    cells = ["1.30.1", "3 of 3", "2 of 3, 1 need a later one", "not offered", *["not run"] * 3]
    assert line == f"| {' | '.join(cells)} |"


def test_a_report_is_counted(tmp_path: Path) -> None:
    """A test that broke in its fixture has failed, also where its body had passed before."""
    cases = (
        '<testcase classname="tests.x" name="a"/>',
        '<testcase classname="tests.x" name="b"><failure/></testcase>',
        '<testcase classname="tests.x" name="c"/>',
        '<testcase classname="tests.x" name="c"><error/></testcase>',
        '<testcase classname="tests.x" name="d"><skipped/></testcase>',
    )
    path = tmp_path / "report.xml"
    path.write_text(f"<testsuites><testsuite>{''.join(cases)}</testsuite></testsuites>")
    assert counted(path) == {"passed": 1, "skipped": 1, "failed": ["x::b", "x::c"]}


def test_the_version_is_the_binarys_own_word(tmp_path: Path) -> None:
    binary = tmp_path / "kube-apiserver"
    binary.write_text("#!/bin/sh\necho Kubernetes v1.34.4\n")
    binary.chmod(0o755)
    assert minor_version(binary) == 34
