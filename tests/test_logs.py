"""Log lines: one line each and printable, whatever names and errors they have."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import pytest
import structlog

from gangsched.logs import set_up_logs


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = structlog.get_config()
    yield
    structlog.configure(**before)


def logged(style: str, **values: object) -> str:
    file = io.StringIO()
    set_up_logs(style, file=file)
    structlog.get_logger("test").warning("a page failed", **values)
    return file.getvalue()


def test_text_has_no_control_characters() -> None:
    line = logged("text", path="/\n\x1b[2J\x9b2J\u202e\u2028", err="has a blank")
    assert line.endswith(r'a page failed path=/\x0a\x1b[2J\x9b2J\x202e\x2028 err="has a blank"' + "\n")


def test_a_value_does_not_end_its_own_quotes() -> None:
    line = logged("text", err='it says "no" result=ok', path='a\\"b', last="a b\\", other="a\\b")
    assert line.endswith(r' err="it says \"no\" result=ok" path="a\\\"b" last="a b\\" other=a\b' + "\n")


@pytest.mark.parametrize("style", ["text", "json"])
def test_the_name_of_a_file_need_not_be_text(style: str) -> None:
    line = logged(style, file=b"/tmp/\xff".decode(errors="surrogateescape"))
    if style == "json":
        assert json.loads(line)["file"] == r"/tmp/\xdcff"
    else:
        assert r"file=/tmp/\xdcff" in line
    assert line.isascii()
