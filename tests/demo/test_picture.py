"""The picture is one file that needs nothing else, moves where it may and stands still on a telling frame."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from gangsched.lab.demo.shows.picture import picture
from gangsched.lab.demo.shows.screen import Frame
from gangsched.lab.demo.story import STORY
from tests.demo.rehearsal import Rehearsal

SVG = "{http://www.w3.org/2000/svg}"


def groups(svg: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(svg)
    return [g for g in root.findall(f"{SVG}g") if "f" in g.get("class", "").split()]


def words(group: ElementTree.Element) -> str:
    return " ".join(text.text or "" for text in group.iter(f"{SVG}text"))


async def test_every_frame_is_in_it_and_one_stands_still() -> None:
    play = await Rehearsal().play()
    svg = picture(play.frames, still=8)
    found = groups(svg)
    assert len(found) == len(STORY)
    assert [step.title in words(group) for step, group in zip(STORY, found, strict=True)] == [True] * len(
        STORY
    )
    assert [("still" in group.get("class", "")) for group in found].index(True) == 8
    delays = [float(re.findall(r"animation-delay:(-?[\d.]+)s", g.get("style", ""))[0]) for g in found]
    assert delays == [4.0 * i for i in range(-len(STORY), 0)]
    assert "prefers-reduced-motion" in svg


async def test_it_needs_nothing_from_elsewhere_and_is_small() -> None:
    svg = picture((await Rehearsal().play()).frames, still=8)
    assert set(re.findall(r"https?://[^\"<) ]+", svg)) == {"http://www.w3.org/2000/svg"}
    for word in ("@import", "url(", "<script", "href", "src="):
        assert word not in svg
    assert len(svg) < 230_000


async def test_reserved_devices_are_hollow_and_bound_ones_are_not() -> None:
    play = await Rehearsal().play()
    svg = picture(play.frames[3:4], still=0)
    assert "@keyframes" not in svg, "one frame does not move"
    outlined = re.findall(r"\.(s\d+)\{fill:#[0-9a-f]{6};fill-opacity", svg)
    assert len(outlined) == 1, "of one gang"
    hollow = re.findall(rf'<path class="{outlined[0]}" d="([^"]*)"', svg)
    assert sum(path.count("M") for path in hollow) == 16


async def test_what_users_wrote_stays_text() -> None:
    play = await Rehearsal().play(STORY[:1])
    frame = play.frames[0]
    svg = picture([Frame(frame.scene, frame.heading, "<script>alert(1)</script> & more")], still=0)
    assert "<script" not in svg
    assert "<script>alert(1)</script> & more" in words(groups(svg)[0])
