"""Slips on the command line: one line that names the nearest command, flag or choice, and exit code 2."""

from __future__ import annotations

import argparse
import sys

import pytest

from gangsched.command.cli import _parser, main
from gangsched.command.commands import COMMANDS


def told(line: str, capsys: pytest.CaptureFixture[str]) -> str:
    with pytest.raises(SystemExit) as ended:
        main(line.split())
    assert ended.value.code == 2, line
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "Traceback" not in captured.err
    return captured.err.splitlines()[-1]


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("quue", "gangsched: error: there is no command 'quue'; did you mean queue?"),
        ("what-if", "gangsched: error: there is no command 'what-if'; did you mean whatif?"),
        ("anonymize", "gangsched: error: there is no command 'anonymize'; did you mean anonymise?"),
        ("why d/train", "gangsched: error: there is no command 'why'; did you mean explain?"),
        ("frob", "gangsched: error: there is no command 'frob'; gangsched --help lists them"),
        ("queue --strat", "gangsched queue: error: there is no flag --strat; did you mean --start?"),
        (
            "queue --namespce=x",
            "gangsched queue: error: there is no flag --namespce; did you mean --namespace?",
        ),
        (
            "queue -o jsn",
            "gangsched queue: error: argument -o/--output: 'jsn' is none of table, json; did you mean json?",
        ),
        (
            "queue --frob",
            "gangsched queue: error: there is no flag --frob; gangsched queue --help lists them",
        ),
        ("queue extra", "gangsched queue: error: too many arguments: extra"),
        (
            "explain d/train --strat",
            "gangsched explain: error: there is no flag --strat; did you mean --start?",
        ),
        (
            "scheduler --confg x",
            "gangsched scheduler: error: there is no flag --confg; did you mean --config?",
        ),
        (
            "import sact a b",
            "gangsched import: error: argument KIND: 'sact' is none of csv, kubernetes, sacct, swf;"
            " did you mean sacct?",
        ),
        ("explain --strat", "gangsched explain: error: there is no flag --strat; did you mean --start?"),
        ("explain", "gangsched explain: error: the following arguments are required: NAMESPACE/GANG"),
        ("--vrsion", "gangsched: error: there is no flag --vrsion; did you mean --version?"),
        (
            "queue --a\x1b[2Jb",
            r"gangsched queue: error: there is no flag --a\x1b[2Jb; gangsched queue --help lists them",
        ),
    ],
)
def test_a_slip_is_answered_with_what_is_nearest(
    line: str, error: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(line, capsys) == error


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_answers_an_unknown_flag_with_the_nearest_one(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert told(f"{command} --hlep", capsys).endswith("there is no flag --hlep; did you mean --help?")


def test_the_plugin_of_kubectl_is_called_as_it_was_typed(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "argv", ["/opt/venv/bin/kubectl-gangsched"])
    assert told("queue --strat", capsys).startswith(
        "kubectl gangsched queue: error: there is no flag --strat;"
    )
    assert told("quue", capsys) == "kubectl gangsched: error: there is no command 'quue'; did you mean queue?"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_says_what_it_does_and_what_it_is_given(command: str) -> None:
    whole = _parser([command])
    [commands] = [one for one in whole._actions if isinstance(one, argparse._SubParsersAction)]
    parser = commands.choices[command]
    assert parser.description
    assert [one.dest for one in parser._actions if not one.option_strings and not one.help] == []


def test_gangs_does_not_speak_of_a_scheduler_that_it_never_asks(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["gangs", "--help"])
    assert "where no scheduler answers" not in " ".join(capsys.readouterr().out.split())
