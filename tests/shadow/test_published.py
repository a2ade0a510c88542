"""Where shadow mode's reports go, and what becomes of one that cannot be written."""

from __future__ import annotations

from pathlib import Path

import pytest
import structlog.testing

from gangsched.shadow.published import Reports, ShadowSettings
from gangsched.shadow.records import PodRecord, Records


def test_a_terminal_that_takes_nothing_costs_its_report_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A full disk behind stdout, at SIGUSR1: the scheduler ended, and with it all that it had compared."""
    records = Records()
    records.seen("uid-a", PodRecord("d/a", "d/a", is_gang=False, seen_s=1.0))
    file = tmp_path / "report.json"
    reports = Reports(records, ShadowSettings(str(file)), names=["gangsched"])
    stdout = open("/dev/full", "w", encoding="utf-8")  # noqa: SIM115 - closing it fails as writing does
    monkeypatch.setattr("sys.stdout", stdout)
    with structlog.testing.capture_logs() as logs:
        reports.say()
    monkeypatch.undo()
    with pytest.raises(OSError, match="No space left"):
        stdout.close()
    assert [(one["file"], one["err"]) for one in logs] == [("stdout", "No space left on device")]
    assert '"d/a"' in file.read_text()


def test_a_link_for_the_report_is_followed_and_not_replaced(tmp_path: Path) -> None:
    """As /dev/null would be, by root: the next program that wrote there filled the disk."""
    file, link = tmp_path / "file", tmp_path / "link"
    link.symlink_to("file")
    Reports(Records(), ShadowSettings(str(link)), names=["gangsched"]).say()
    assert link.is_symlink()
    assert file.read_text().startswith("{")
