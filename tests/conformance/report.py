"""What a conformance run found: reading e2e.test's report, comparing the schedulers, the page in docs/.

What does not live here: running anything (cluster.py).
"""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gangsched.errors import GangschedError

CONTROL, OURS = "kube-scheduler", "gangsched"
SCHEDULERS = (CONTROL, OURS)
SUITES = {"scheduling": "[sig-scheduling]", "dra": "[sig-node] [DRA]"}
"""How the names of the tests begin that are run."""
NEED_KUBELET = ("[Feature:DynamicResourceAllocation]", "[FeatureGate:DRADeviceCompatibilityGroups]")
"""In the names of tests whose drivers or pods a real kubelet must start: not run."""
MAX_REASON = 160
_NODE = "[It] "
# The group, which is the same for all tests of a suite; and all labels, which Ginkgo puts behind a name once
# more.
_GROUP = re.compile(r"^\[sig-[^\]]*\] ")
_LABELS = re.compile(r" \[sig-[^\]]*\]$")
# Ginkgo's words; a test that skips itself says why behind the first one, which a filtered test does not.
_SELF_SKIPPED = "skipped - "


class UnreadableReport(GangschedError):
    """e2e.test left no report, or one that holds none of the tests."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How one test ended: passed, failed or skipped (by itself), with the first line of the reason."""

    ended: str
    why: str = ""


Found = dict[str, dict[str, Outcome]]
"""By test, then by scheduler."""


def read(path: Path) -> dict[str, Outcome]:
    """The tests of a JUnit report that were run, by name. Raises: UnreadableReport."""
    try:
        cases = ET.parse(path).getroot().iter("testcase")
    except (OSError, ET.ParseError) as error:
        raise UnreadableReport(f"e2e.test left no report: {error}") from None
    found = {}
    for case in cases:
        name = case.get("name", "").removeprefix(_NODE)
        if not name.startswith(tuple(SUITES.values())):
            continue
        outcome = _outcome(case)
        if outcome is not None:
            found[_LABELS.sub("", _GROUP.sub("", name))] = outcome
    if not found:
        raise UnreadableReport(f"{path}: no test of {' or '.join(SUITES.values())} was run")
    return found


def _outcome(case: ET.Element) -> Outcome | None:
    skipped = case.find("skipped")
    if skipped is not None:
        why = skipped.get("message", "")
        if not why.startswith(_SELF_SKIPPED):
            return None
        return Outcome(ended="skipped", why=_first_line(why.removeprefix(_SELF_SKIPPED)))
    for kind in ("failure", "error"):
        broken = case.find(kind)
        if broken is not None:
            return Outcome(ended="failed", why=_first_line(broken.get("message", "") or broken.text or ""))
    return Outcome(ended="passed")


def _first_line(text: str) -> str:
    line = next(iter(text.strip().splitlines()), "no reason given").strip()
    return line if len(line) <= MAX_REASON else line[: MAX_REASON - 1] + "…"


def compared(of: Mapping[str, Mapping[str, Outcome]]) -> Found:
    """By scheduler turned into by test, in the order of names."""
    names = sorted({name for outcomes in of.values() for name in outcomes})
    return {name: {one: of[one][name] for one in SCHEDULERS if name in of.get(one, {})} for name in names}


def lost(found: Found) -> list[str]:
    """Tests that pass with kube-scheduler and do not with gangsched, whatever else became of them."""
    passed = [name for name, by in found.items() if _ended(by, CONTROL) == "passed"]
    return [name for name in passed if _ended(found[name], OURS) != "passed"]


def _ended(by: Mapping[str, Outcome], scheduler: str) -> str:
    return by[scheduler].ended if scheduler in by else "not run"


def of_suite(suite: str, found: Found) -> Found:
    """The tests of one suite, by the names that `read` gives them."""
    begins = {one: _GROUP.sub("", f"{text} ").strip() for one, text in SUITES.items()}
    others = tuple(text for one, text in begins.items() if text and one != suite)
    return {
        name: by
        for name, by in found.items()
        if (name.startswith(begins[suite]) if begins[suite] else not name.startswith(others))
    }


def as_json(versions: Mapping[str, str], found: Found) -> dict[str, Any]:
    """What is kept of a suite in the repository; the page is made of it."""
    tests = {
        name: {one: [outcome.ended, outcome.why] for one, outcome in by.items()} for name, by in found.items()
    }
    return {"versions": dict(versions), "tests": tests}


def from_json(kept: Mapping[str, Any]) -> Found:
    """The inverse of as_json."""
    return {
        name: {one: Outcome(ended=ended, why=why) for one, (ended, why) in by.items()}
        for name, by in kept["tests"].items()
    }


def summary(found: Found) -> str:
    """One line: how many pass with each, and how many gangsched loses."""
    n = {one: sum(_ended(by, one) == "passed" for by in found.values()) for one in SCHEDULERS}
    n_lost = len(lost(found)) or "none"
    return (
        f"{OURS} passes {n[OURS]} of {len(found)}, {CONTROL} {n[CONTROL]};"
        f" {n_lost} of those that pass with {CONTROL} do not with {OURS}"
    )


def table(found: Found) -> str:
    """One line a test."""
    lines = [f"| test | {CONTROL} | {OURS} |", "|---|---|---|"]
    for name, by in found.items():
        lines.append(f"| {_cell(name)} | {_ended(by, CONTROL)} | {_ended(by, OURS)} |")
    return "\n".join(lines)


def reasons(found: Found) -> str:
    """Why each test that did not pass did not, as the test says it."""
    lines = []
    for name, by in found.items():
        run = [one for one in SCHEDULERS if one in by]
        said = [f"{one}: {_cell(by[one].why)}" for one in run if by[one].ended != "passed"]
        if said:
            lines.append("\n".join([f"- {_cell(name)}", *(f"    - {line}" for line in said)]))
    return "\n".join(lines)


def _cell(text: str) -> str:
    # The names hold brackets, and a reason anything: neither may become a link, a tag or a column.
    for special in "\\`*_[]<>|":
        text = text.replace(special, f"\\{special}")
    return text


def page(kept: Mapping[str, Mapping[str, Any]]) -> str:
    """docs/conformance.md, whole. kept: by suite, what as_json made of it."""
    parts = [
        "# Kubernetes' own tests of scheduling",
        "`make conformance` writes this page; it takes a Go toolchain, and minutes. It runs the end-to-end"
        f" tests of `{SUITES['scheduling']}` and of `{SUITES['dra']}`, Dynamic Resource Allocation, that"
        " Kubernetes is released with, once with kube-scheduler and once with gangsched as"
        " `default-scheduler`, each on a control plane of its own: etcd, kube-apiserver,"
        " kube-controller-manager, and nodes that kwok plays. None is left out, the serial and the"
        " feature-gated ones included, but those whose drivers or pods a real kubelet must start: their names"
        f" say `{'` or `'.join(NEED_KUBELET)}`. It fails where a test passes with kube-scheduler and does not"
        " with gangsched.",
    ]
    for suite, result in kept.items():
        used = ", ".join(f"{name} {version}" for name, version in result["versions"].items())
        found = from_json(result)
        parts += [f"## `{SUITES[suite]}`", f"Last run with {used}: **{summary(found)}**.", table(found)]
        if why := reasons(found):
            parts += ["What did not pass, in the test's words:", why]
    return "\n\n".join(parts) + "\n"
