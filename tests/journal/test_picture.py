"""`gangsched replay --picture`: nodes over time, evictions, and waits by size, in one file."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import pytest

from gangsched.command.cli import main
from gangsched.journal.records import Start, Turn
from gangsched.journal.replay.picture import Drawing, picture
from gangsched.journal.replay.replaying import Replay
from gangsched.model.effects import BindPod
from tests.journal.day.decisions import DIRECTORY, DayReplay, journals_in, records_of
from tests.journal.test_command import day

SVG = "{http://www.w3.org/2000/svg}"


def rects(text: str, look: str) -> list[ElementTree.Element]:
    """The rectangles of that look, without the legend's."""
    found = ElementTree.fromstring(text).iter(f"{SVG}rect")
    return [one for one in found if one.get("class") == look and one.get("width") != "12.0"]


def words(text: str) -> list[str]:
    return [one.text or "" for one in ElementTree.fromstring(text).iter(f"{SVG}text")]


def test_the_command_draws_a_day(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day().write_to(tmp_path)
    file = tmp_path / "day.svg"
    assert main(["replay", str(tmp_path), "--picture", str(file)]) == 0
    assert "all as recorded" in capsys.readouterr().out
    text = file.read_text()
    assert "prefers-color-scheme:dark" in text
    assert set(re.findall(r"https?://[^\"<) ]+", text)) == {"http://www.w3.org/2000/svg"}
    [title] = [one for one in words(text) if "nodes" in one and "started" in one]
    assert re.match(r"20\d\d-\d\d-\d\d \d\d:\d\d to ", title)


def test_use_failures_evictions_and_waits_are_in_it() -> None:
    """The first four hours of the recorded day."""
    drawing = Drawing()
    first, *others = records_of(journals_in(DIRECTORY)["1-day"])
    assert isinstance(first, Start)
    replay: Replay = DayReplay(first)
    started = set()
    for record in others:
        if isinstance(record, Turn) and record.now_s > 4 * 3600.0:
            break
        effects = replay.play(record)
        drawing.look(replay, effects)
        started |= {one.group for one in effects if isinstance(one, BindPod)}
    drawing.evicted_s.append(drawing.moments[-1][0])
    text = picture(drawing)
    assert rects(text, "u5"), "nodes in use as a whole"
    assert rects(text, "u0"), "nodes that nobody uses"
    assert rects(text, "gone")
    assert rects(text, "evicted")
    assert {name.partition("/")[2] for name in started} <= {key.partition("/")[2] for key, _ in drawing.waits}
    assert sum(n for n in map(_n_gangs, words(text))) == len(drawing.waits)


def _n_gangs(text: str) -> int:
    found = re.fullmatch(r"[\d a-z]+ pods?: ([\d,]+)", text)
    return int(found[1].replace(",", "")) if found else 0


def test_it_is_bounded_and_names_cannot_break_it() -> None:
    drawing = Drawing()
    drawing.moments = [(float(k), {f"<n&{n}>": n / 300 for n in range(300)}) for k in range(481)]
    drawing._thin()
    assert len(drawing.moments) == 241
    drawing.waits = {("d/a", 1.0): (100, 7300.0), ("d/b", 1.0): (1, 0.0)}
    text = picture(drawing)
    tops = {one.get("y") for look in ("u0", "u1", "u2", "u3", "u4", "u5") for one in rects(text, look)}
    assert len(tops) == 60
    assert "In use, 5 nodes a row" in words(text)
    assert "<n&0>" in words(text)
    assert "2.0 h" in words(text)
    assert picture(Drawing()).startswith("<svg"), "nothing is a picture too"


def test_journals_that_are_as_far_apart_as_clocks_go_are_drawn() -> None:
    drawing = Drawing()
    drawing.moments = [(0.0, {"n0": 0.5}), (2.3e11, {"n0": 0.5})]
    assert any(one.startswith("1970-01-01 00:00 to 9258-") for one in words(picture(drawing)))


def test_a_file_that_cannot_be_written_is_reported_before_anything_is_replayed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    day().write_to(tmp_path)
    assert main(["replay", str(tmp_path), "--picture", str(tmp_path / "no" / "x.svg")]) == 2
    told = capsys.readouterr()
    assert "--picture: cannot be written: No such file or directory" in told.err
    assert "as recorded" not in told.out
