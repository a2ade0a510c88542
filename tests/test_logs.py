"""Log lines: one line each and printable, whatever names and errors they have."""

from __future__ import annotations

import errno
import io
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
import structlog

from gangsched.command.cli import main
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


class _Refusing(io.StringIO):
    """A log's file that takes lines while `number` is 0. Else it says so at a line's end, or `in_write`."""

    number = 0
    in_write = False

    def write(self, text: str) -> int:
        if self.number and self.in_write:
            raise OSError(self.number, os.strerror(self.number))
        return 0 if self.number else super().write(text)

    def flush(self) -> None:
        if self.number:
            raise OSError(self.number, os.strerror(self.number))


@pytest.mark.parametrize("in_write", [False, True])
@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EPIPE])
def test_a_log_that_takes_no_lines_ends_nothing(number: int, in_write: bool) -> None:
    """A full disk, and a pipe whose reader has ended, as journald does where it is restarted."""
    file = _Refusing()
    set_up_logs("text", file=file)
    log = structlog.get_logger("test")
    log.info("first")
    file.number, file.in_write = number, in_write
    log.info("lost")
    file.number = 0
    log.info("last")
    assert [line.split()[-1] for line in file.getvalue().splitlines()] == ["first", "last"]


def test_every_command_logs_to_stderr_in_one_form(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """Not in structlog's own, on stdout among the answers."""
    config = tmp_path / "config"
    user = "users: [{name: u, user: {token: t}}]\ncontexts: [{name: c, context: {cluster: c, user: u}}]\n"
    server = "clusters: [{name: c, cluster: {server: 'http://127.0.0.1:1'}}]\ncurrent-context: c\n"
    config.write_text(f"apiVersion: v1\nkind: Config\n{server}{user}")
    structlog.reset_defaults()
    assert main(["gangs", "--kubeconfig", str(config)]) == 1
    structlog.get_logger("gangsched.test").warning("a line", of="doctor")
    out = capfd.readouterr()
    assert "a line" not in out.out
    assert re.search(r"^[0-9:.]+ warning a line of=doctor$", out.err, re.MULTILINE), out.err
