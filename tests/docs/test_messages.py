"""docs/troubleshooting.md knows every message of the source, and none that is not there any more."""

from __future__ import annotations

import re
from collections import Counter

from gangsched.core.state import reporter
from tests.docs.messages import VARIES, event_reasons, messages
from tests.docs.pages import DOCS, code_spans

PAGE = DOCS / "troubleshooting.md"
_WORD = re.compile(r"[A-Za-z']{3,}")
# Where the page tells people what to type, or names fields and reasons, it quotes no message.
_QUOTES_MESSAGES = re.compile(r" |…")


def explained() -> str:
    """All code spans, each on a line of its own."""
    return "\n".join(code_spans(PAGE))


def test_messages_are_found_at_all() -> None:
    """The collector sees each way of saying something."""
    known = {message.text.strip() for message in messages()}
    assert "gang … waits for members: … of … exist" in known
    assert "node(s) had untolerated taint(s)" in known
    assert "… is not a duration; examples: 90s, 5m, 1h30m" in known
    assert {"GangAborted", "FailedScheduling", "DeviceMismatch"} <= set(event_reasons())


def test_every_message_is_explained() -> None:
    text = explained()
    missing = [str(message) for message in messages() if not message.pattern.search(text)]
    assert not missing, "add to docs/troubleshooting.md, with cause and cure:\n" + "\n".join(missing)


def test_every_reason_of_an_event_is_explained() -> None:
    text = explained()
    assert [reason for reason in event_reasons() if reason not in text] == []


def test_every_reason_of_a_condition_of_pods_is_explained() -> None:
    spans = set(code_spans(PAGE))
    assert {"Unschedulable", reporter.SCHEDULER_ERROR, reporter.GATED} <= spans


def test_no_explained_message_is_unused() -> None:
    """Every word of a quoted message is a word of some message that it matches."""
    stale = []
    for line in _rows():
        for span in line:
            said: set[str] = set()
            for message in messages():
                if message.pattern.search(span):
                    said |= set(_WORD.findall(message.text.replace(VARIES, " ")))
            strange = [word for word in _WORD.findall(span) if word not in said]
            if strange and _QUOTES_MESSAGES.search(span):
                stale.append(f"{span!r}: nobody says {', '.join(strange)}")
    assert not stale, "no longer said by the source:\n" + "\n".join(stale)


def test_each_message_stands_in_one_place() -> None:
    """A reader who searches the page finds one cause and one cure."""
    times = Counter(span for line in _rows() for span in line)
    assert [span for span, n in times.items() if n > 1] == []


def _rows() -> list[list[str]]:
    """The code spans of the first cell of each row in the tables headed `message`."""
    found, inside = [], False
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        if not line.startswith("|"):
            inside = False
        elif line.startswith("| message |"):
            inside = True
        elif inside and not line.startswith("|---"):
            first = line.split(" | ")[0]
            found.append(re.findall(r"`([^`]+)`", first))
    return found
