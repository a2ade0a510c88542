"""A room is small enough to be seen at once: a reader takes in a dozen names, and knows where to go on."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

REPO = Path(__file__).parents[2]
MAX_MODULES = 12


def crowded(house: Path) -> dict[str, int]:
    """Packages with more modules than that, besides __init__.py; rooms inside a room do not count."""
    modules = (path for path in house.rglob("*.py") if path.name != "__init__.py")
    counts = Counter(path.parent.relative_to(house.parent).as_posix() for path in modules)
    return {room: n for room, n in sorted(counts.items()) if n > MAX_MODULES}


def test_no_room_has_more_than_a_dozen_modules() -> None:
    """Forty files side by side are forty names to read before one is opened, and tell nothing of what belongs
    together. A room that would have a thirteenth is cut by idea; its parts get a name, and a sentence each.
    """
    assert crowded(REPO / "gangsched") == {}


def test_a_crowded_room_is_found(tmp_path: Path) -> None:
    room = tmp_path / "house" / "room"
    room.mkdir(parents=True)
    for name in ("__init__", *(f"m{k}" for k in range(MAX_MODULES))):
        (room / f"{name}.py").write_text("")
    assert crowded(tmp_path / "house") == {}
    (room / "one_more.py").write_text("")
    assert crowded(tmp_path / "house") == {"house/room": MAX_MODULES + 1}
