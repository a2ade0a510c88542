"""The reporter's notices, each reported once until the condition clears: pure. Called by `reporter`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

Level = Literal["info", "warning", "error"]


class Notice(NamedTuple):
    """A log line; with a reason, also an Event about the Node."""

    level: Level
    message: str
    fields: Mapping[str, object]
    reason: str = ""


class Notices:
    """One node's notices."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._notices: list[Notice] = []
        self._reported: dict[str, str] = {}

    def take(self) -> list[Notice]:
        """All notices since the last call."""
        notices, self._notices = self._notices, []
        return notices

    def problems(self, problems: Sequence[str]) -> None:
        """Set the current problems; all others are cleared."""
        now = {f"problem {problem}" for problem in problems}
        for key in [key for key in self._reported if key.startswith("problem ") and key not in now]:
            self.cleared(key, "resolved: " + self._reported[key])
        for problem in problems:
            self.say(f"problem {problem}", "warning", problem)

    def report_unlabelled(self, problems: Sequence[str]) -> None:
        """Report problems of the label format, also as an Event: pods do not get these devices."""
        text = "; ".join(problems)
        if not text:
            self.cleared("unsaid", "labels list the devices again")
        elif self._reported.get("unsaid") != text:
            self._reported["unsaid"] = text
            what = (
                f"inventoryIn: labels cannot hold the list: {text}. For that resource the Node keeps what it"
                " has (a new one is listed without devices); inventoryIn: annotation takes any ID and number"
            )
            self._notices.append(Notice("error", what, {"node": self._node}, reason="DevicesNotListed"))

    def say(self, key: str, level: Level, text: str, **more: object) -> None:
        """Report once, until it clears or the text changes."""
        if self._reported.get(key) != text:
            self._reported[key] = text
            self.tell(level, text, **more)

    def cleared(self, key: str, text: str) -> None:
        """Report the recovery, if the problem was reported."""
        if self._reported.pop(key, None) is not None:
            self.tell("info", text)

    def tell(self, level: Level, text: str, **more: object) -> None:
        """Report each time."""
        self._notices.append(Notice(level, text, {"node": self._node, **more}))
