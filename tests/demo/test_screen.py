"""What the table and its map show, narrow and wide, with and without colours."""

from __future__ import annotations

import io

import pytest
from msgspec.structs import replace
from rich.console import Console

from gangsched.core.explaining.reports import Holding
from gangsched.lab.demo.shows.screen import MIN_HEIGHT, PLAIN, Frame, Look, screen
from gangsched.lab.demo.shows.show import Lines, Table
from gangsched.lab.demo.shows.terminal import choose
from gangsched.lab.demo.story import STORY
from gangsched.lab.sim.objects import GPU
from tests.demo.rehearsal import Rehearsal

LEARNERS, PRETRAIN, NOTEBOOK = 3, 5, 8


def drawn(frame: Frame, *, width: int, height: int = 40, look: Look | None = None) -> list[str]:
    file = io.StringIO()
    console = Console(file=file, width=width, height=height, color_system=None)
    console.print(screen(frame, look or Look(), width=width, height=height))
    return file.getvalue().splitlines()


def row(lines: list[str], name: str) -> str:
    return next(line for line in lines if line[2:].startswith(f"{name} "))


@pytest.fixture(scope="module")
def frames() -> list[Frame]:
    import asyncio

    return asyncio.run(Rehearsal().play()).frames


@pytest.mark.parametrize("width", [72, 80, 100, 120, 200])
def test_no_line_is_wider_than_the_terminal(frames: list[Frame], width: int) -> None:
    for frame in frames:
        lines = drawn(frame, width=width)
        assert max(map(len, lines)) <= width
        assert lines[0].startswith("gangsched demo")
        assert lines[0].endswith(f"{frame.scene.at_s:.1f} s")


@pytest.mark.parametrize("height", [MIN_HEIGHT, 24, 30])
def test_no_frame_is_higher_than_the_terminal(frames: list[Frame], height: int) -> None:
    for frame in frames:
        assert len(drawn(frame, width=80, height=height)) < height


def test_a_waiting_gang_at_80_columns(frames: list[Frame]) -> None:
    lines = drawn(frames[LEARNERS], width=80)
    assert row(lines, "learners").split()[1:6] == ["learners", "waiting", "2", "0", "2"]
    assert "n[4,8] GPU-n4-[0-7] +8" in row(lines, "learners")

    assert any("given back in 60 s: group default/actors" in line for line in lines)
    assert any(line.startswith("r0  ■······· □□□□□□□□ □□□□□□□□ ········") for line in lines)
    assert any("16 reserved, not bound" in line for line in lines)


def test_short_of_room_the_ids_lose_their_nodes_names(frames: list[Frame]) -> None:
    scene = frames[LEARNERS].scene
    holds = [
        Holding(node, n_bound=1, bound_ids={GPU: tuple(f"GPU-{node}-{k}" for k in range(8))})
        for node in ("node-04", "node-05", "node-06", "node-07")
    ]
    named = tuple(replace(seen, view=replace(seen.view, holds=tuple(holds))) for seen in scene.groups)
    frame = Frame(replace(scene, groups=named))
    assert row(drawn(frame, width=80), "train").endswith("node-[04-07] GPU-…-[0-7] each")
    assert row(drawn(frame, width=100), "train").endswith("node-[04-07] GPU-node-04-[0-7] +24")


def test_a_gang_without_room_at_120_columns(frames: list[Frame]) -> None:
    lines = drawn(frames[PRETRAIN], width=120)
    assert row(lines, "pretrain").split()[1:6] == ["pretrain", "unschedulable", "0", "0", "8"]
    why = lines[lines.index(row(lines, "pretrain")) + 1]
    assert why.strip().startswith("5 of 8 fit; member pretrain-5: 0/16 nodes are available")
    assert any("  81 bound, of 128 GPUs" in line for line in lines)


def test_who_is_deleted_stays_in_the_table_and_off_the_map(frames: list[Frame]) -> None:
    lines = drawn(frames[NOTEBOOK], width=100)
    assert row(lines, "train").split()[1:] == ["train", "deleted", "4"]


def test_devices_by_claims_are_on_the_map_and_the_answer_is_whole(frames: list[Frame]) -> None:
    for width in (72, 100):
        lines = drawn(frames[-1], width=width)
        assert any(line.startswith("rack-4  ■■■■···· ········") for line in lines)
        caption = " ".join(lines[2:7])
        assert "8 pass `device.attributes['gpu.nvidia.com'].productName.contains('H100')`" in caption
        assert "4 in use (4 by gang default/rollout), 4 free." in caption


def test_low_terminals_show_the_living_first(frames: list[Frame]) -> None:
    lines = drawn(frames[-1], width=80, height=MIN_HEIGHT)
    assert not any(line[2:].startswith("train ") for line in lines)
    assert "node-16 gpu-[0-3]" in row(lines, "rollout"), "its devices by claims too"


def test_without_colours_gangs_are_letters(frames: list[Frame]) -> None:
    lines = drawn(frames[LEARNERS], width=80, look=PLAIN)
    assert all(line.isascii() or "…" in line for line in lines)
    assert any(line.startswith("r0  A....... dddddddd dddddddd ........") for line in lines)
    assert row(lines, "learners").startswith("D learners")


def test_what_users_wrote_is_not_markup(frames: list[Frame]) -> None:
    scene = frames[PRETRAIN].scene
    nasty = tuple(
        replace(seen, view=replace(seen.view, why="[bold red]oh[/] [link=http://x]")) for seen in scene.groups
    )
    lines = drawn(Frame(replace(scene, groups=nasty)), width=80)
    assert any("[bold red]oh[/] [link=http://x]" in line for line in lines)


def test_an_empty_cluster_can_be_shown() -> None:
    from gangsched.lab.demo.scene import Scene

    assert drawn(Frame(Scene(0.0, 0.0)), width=80)


# -- which show a terminal gets ------------------------------------------------------------------------


class Terminal(io.StringIO):
    """A file that says it is a terminal."""

    def isatty(self) -> bool:
        return True


def chosen(monkeypatch: pytest.MonkeyPatch, lines: bool = False, /, **environ: str) -> tuple[object, str]:
    for name in ("TERM", "NO_COLOR", "COLUMNS", "LINES", "FORCE_COLOR", "COLORTERM"):
        monkeypatch.delenv(name, raising=False)
    given = {"TERM": "xterm-256color", "COLUMNS": "100", "LINES": "30"} | environ
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    return choose(Terminal(), given, lines=lines)


def test_a_terminal_gets_the_table(monkeypatch: pytest.MonkeyPatch) -> None:
    show, note = chosen(monkeypatch)
    assert isinstance(show, Table)
    assert not note
    assert show._look.colours


def test_no_color_gets_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    show, _ = chosen(monkeypatch, NO_COLOR="1")
    assert isinstance(show, Table)
    assert not show._look.colours


@pytest.mark.parametrize(
    ("environ", "said"),
    [
        ({"TERM": "dumb"}, "TERM=dumb cannot move the cursor: a line for each change"),
        ({"COLUMNS": "60"}, "the terminal has 60 x 30 cells, the table needs 72 x 20: a line"),
        ({"LINES": "12"}, "the terminal has 100 x 12 cells, the table needs 72 x 20: a line"),
    ],
)
def test_other_terminals_get_lines_and_get_the_reason(
    monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], said: str
) -> None:
    show, note = chosen(monkeypatch, **environ)
    assert isinstance(show, Lines)
    assert note.startswith(said)


def test_pipes_get_lines_and_no_remark() -> None:
    show, note = choose(io.StringIO(), {"TERM": "xterm"})
    assert isinstance(show, Lines)
    assert not note


def test_lines_can_be_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    show, note = chosen(monkeypatch, True)
    assert isinstance(show, Lines)
    assert not note


def test_the_live_table_draws_every_step(monkeypatch: pytest.MonkeyPatch) -> None:
    import asyncio

    file = Terminal()
    console = Console(file=file, width=100, height=30, force_terminal=True, color_system="standard")
    with Table(console, Look()) as table:
        asyncio.run(Rehearsal(show=table).play())
        table.end("over")
    said = file.getvalue()
    assert [frame.title for frame in table.frames] == [step.title for step in STORY]
    assert all(step.title in said for step in STORY)
    assert said.rstrip().endswith("\x1b[?25h"), "the cursor is shown again"
