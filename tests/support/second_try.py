"""A second try for tests that wait for real processes, on a clock that the machine shares with others.

Such a test may lose a race of its own making: a server that writes a moment later than it ever did
before. One that fails is tried once more; if it then passes, the run names it, to be mended. What is left
out: tests in virtual time, which decide the same each time; a test that has run out of its time; and a
run in which more than `AT_MOST` tests needed it, which fails.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable

import pytest

from tests.support.processes import until

AT_MOST = 3
OUT_OF_TIME = r"Timeout \(>"
"""The guard of pytest-timeout goes off once for a test, however often it is tried."""


def mark(items: Iterable[pytest.Item]) -> None:
    for item in items:
        if waits_for_processes(item):
            item.add_marker(pytest.mark.flaky(reruns=1, rerun_except=[OUT_OF_TIME]))


def waits_for_processes(item: pytest.Item) -> bool:
    if item.get_closest_marker("real") is not None:
        return True
    module = item.getparent(pytest.Module)
    return module is not None and any(one is subprocess or one is until for one in vars(module.obj).values())


def tried_again(reporter: pytest.TerminalReporter) -> list[pytest.TestReport]:
    """How each test failed at its first try, in the order in which they did."""
    return list(reporter.stats.get("rerun", ()))


def too_many(config: pytest.Config) -> bool:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    return reporter is not None and len(tried_again(reporter)) > AT_MOST


def report(reporter: pytest.TerminalReporter) -> None:
    again = tried_again(reporter)
    if not again:
        return
    reporter.section("tried a second time")
    for one in again:
        crash = getattr(one.longrepr, "reprcrash", None)
        reporter.line(f"{one.nodeid}: {one.longrepr if crash is None else crash.message}")
    reporter.line(f"{len(again)} failed at the first try. What has passed since lost a race: mend it.")
    if len(again) > AT_MOST:
        reporter.line(f"More than {AT_MOST} are no accident: the run has failed.")
