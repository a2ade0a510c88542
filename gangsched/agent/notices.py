"""What the reporter has to say, each thing once until it is well again: pure. Called by `reporter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Level = Literal["info", "warning", "error"]


class Notice(NamedTuple):
    """For the log; with a reason also an Event about the Node."""

    level: Level
    message: str
    fields: Mapping[str, object]
    reason: str = ""


class Notices:
    """One node's."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._notices: list[Notice] = []
        self._said: dict[str, str] = {}

    def take(self) -> list[Notice]:
        """All since the last time."""
        notices, self._notices = self._notices, []
        return notices

    def problems(self, problems: Sequence[str]) -> None:
        """These are there now, and no others."""
        now = {f"problem {problem}" for problem in problems}
        for key in [key for key in self._said if key.startswith("problem ") and key not in now]:
            self.well(key, "in order again: " + self._said[key])
        for problem in problems:
            self.say(f"problem {problem}", "warning", problem)

    def unsaid(self, problems: Sequence[str]) -> None:
        """What labels cannot say. An Event too: pods get nothing of it here, and who asks reads no log."""
        text = "; ".join(problems)
        if not text:
            self.well("unsaid", "labels say again what devices there are")
        elif self._said.get("unsaid") != text:
            self._said["unsaid"] = text
            what = (
                f"inventoryIn: labels cannot say it: {text}. Of that resource the Node stays as it is (one"
                " that is new is listed without devices); inventoryIn: annotation takes any ID and any number"
            )
            self._notices.append(Notice("error", what, {"node": self._node}, reason="DevicesNotListed"))

    def say(self, key: str, level: Level, text: str, **more: object) -> None:
        """Once, until it is well again or another text."""
        if self._said.get(key) != text:
            self._said[key] = text
            self.tell(level, text, **more)

    def well(self, key: str, text: str) -> None:
        """Said where the opposite was."""
        if self._said.pop(key, None) is not None:
            self.tell("info", text)

    def tell(self, level: Level, text: str, **more: object) -> None:
        """Each time."""
        self._notices.append(Notice(level, text, {"node": self._node, **more}))
