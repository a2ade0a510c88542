"""Each command of the pages exists: parsed by ours, a target of make, a verb and files of kubectl.

Commands that end by themselves and need no cluster are run too.
"""

from __future__ import annotations

import argparse
import re
import shlex
import subprocess
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path

import pytest
import yaml

from gangsched.command.cli import _parser, main
from gangsched.lab.controlplane.assets import Assets
from gangsched.lab.sim import command as simulation
from tests.deploy.helm import RELEASE, found_helm
from tests.docs.pages import PAGES, ROOT, Block, blocks_everywhere, code_spans, commands, name_of

_OURS = ("gangsched", ".venv/bin/gangsched")
# Programs of others, whose arguments are theirs to check.
_OTHERS = (
    *("buildah", "chmod", "curl", "docker", "kill", "kustomize", "git", "cd", "mmdebstrap", "openssl"),
    "sacct",
)
_VERBS = {
    *("annotate", "apply", "auth", "create", "debug", "delete", "describe", "gangsched", "get", "label"),
    *("logs", "patch", "port-forward", "rollout", "scale"),
}
_TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
_SEPARATORS = re.compile(r"\s(?:&&|\|\||\||;)\s")


def _lines(block: Block) -> Iterator[str]:
    """Commands of a block, one by one, without a subshell's parentheses or the variable that they go into."""
    for line in commands(block):
        line = re.sub(r"^[a-z]+=\$(?=\()", "", line)
        yield from (part.strip().removeprefix("(").removesuffix(")") for part in _SEPARATORS.split(line))


COMMANDS = [(str(block), line) for block in blocks_everywhere("sh") for line in _lines(block)]


def _check(words: list[str]) -> None:
    """Raises: AssertionError, SystemExit (of argparse)."""
    if words[0] in _OURS:
        _check_ours(words[1:])
    elif words[:3] == [".venv/bin/python", "-m", "gangsched.lab.sim"]:
        simulation._parser().parse_args(words[3:])
    elif words[0] == "make":
        targets = [word for word in words[1:] if "=" not in word]
        assert set(targets) <= _TARGETS, f"make has no such target: {targets}"
    elif words[0] == "kubectl":
        _check_kubectl(words[1:])
    elif words[0] == "helm":
        assert words[1] in {"install", "upgrade", "uninstall", "rollback"}
        assert words[2] == RELEASE
    else:
        assert words[0] in _OTHERS, f"{words[0]}: a program that the pages do not use elsewhere"


def _check_ours(words: list[str]) -> None:
    _parser(words).parse_args(words)
    _paths_exist(words, after=("--plugin",))


def _check_kubectl(words: list[str]) -> None:
    options = argparse.ArgumentParser(allow_abbrev=False)
    options.add_argument("--kubeconfig")
    options.add_argument("-n")
    _, rest = options.parse_known_args(words)
    assert rest[0] in _VERBS, f"kubectl {rest[0]}: no verb that the pages use elsewhere"
    if rest[0] == "gangsched":
        _check_ours(rest[1:])
    _paths_exist(rest, after=("-f", "-k"))


def _paths_exist(words: list[str], *, after: tuple[str, ...]) -> None:
    for option, path in pairwise(words):
        if option in after and "/" in path:
            assert (ROOT / path).exists(), f"{path} does not exist"
            if option == "-k":
                assert (ROOT / path / "kustomization.yaml").exists(), f"{path} is no kustomization"
            elif path.endswith(".yaml"):
                assert list(yaml.safe_load_all((ROOT / path).read_text(encoding="utf-8")))


def _in_sentences() -> Iterator[tuple[str, str]]:
    """Commands in the text that have arguments; a name alone is what a sentence is about, and no command."""
    for page in PAGES:
        for span in dict.fromkeys(code_spans(page)):
            words = span.removeprefix("kubectl gangsched").split()
            if re.match("(gangsched|make|kubectl) ", span) and len(words) > 2 and "…" not in span:
                yield name_of(page), span.removesuffix(" --help")


COMMANDS += _in_sentences()


@pytest.mark.parametrize(("where", "line"), COMMANDS, ids=[f"{at} {text[:40]}" for at, text in COMMANDS])
def test_the_command_exists(where: str, line: str) -> None:
    _check(shlex.split(line))


@pytest.mark.parametrize(
    "line",
    [
        "gangsched scheduler --no-such-flag",
        "gangsched no-such-command",
        "make no-such-target",
        ".venv/bin/python -m gangsched.lab.sim --no-such-flag",
        "kubectl explode pods",
        "kubectl apply -k deploy/nowhere/",
        "rm -rf build",
    ],
)
def test_a_wrong_command_is_found(line: str) -> None:
    with pytest.raises((AssertionError, SystemExit)):
        _check(shlex.split(line))


_CHECKS = [line for _, line in COMMANDS if " check-config " in line and "config/" in line]


@pytest.mark.parametrize("line", dict.fromkeys(_CHECKS))
def test_configurations_are_checked(
    line: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    assert main(shlex.split(line)[1:]) == 0
    assert "profile gangsched" in capsys.readouterr().out


def test_make_help_has_every_target() -> None:
    done = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, timeout=20, check=True)
    assert set(re.findall("^make ([a-z-]+) ", done.stdout, re.MULTILINE)) == _TARGETS


def _kustomizations() -> list[str]:
    found = (shlex.split(line) for _, line in COMMANDS)
    return sorted(
        {words[words.index("-k") + 1] for words in found if words[0] == "kubectl" and "-k" in words}
    )


@pytest.mark.parametrize("folder", _kustomizations())
def test_what_is_applied_can_be_built(folder: str, assets: Assets) -> None:
    """As far as it goes without a cluster; tests/deploy applies the same to real servers."""
    done = subprocess.run(
        [assets.path("kubectl"), "kustomize", str(ROOT / folder)], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    assert all(one["kind"] for one in yaml.safe_load_all(done.stdout))


def _releases() -> list[list[str]]:
    """What releases of the chart are told, by the commands that make them or change them."""
    found = [shlex.split(line) for _, line in COMMANDS]
    return [words for words in found if words[0] == "helm" and words[1] in ("install", "upgrade")]


@pytest.mark.parametrize("words", _releases(), ids=" ".join)
def test_a_release_can_be_rendered(words: list[str], tmp_path: Path) -> None:
    """Its life on a real server is in tests/deploy."""
    name, chart, *told = words[2:]
    of_releases = {"--create-namespace", "--reset-then-reuse-values"}
    helm = found_helm(tmp_path)
    assert "kind: Deployment" in helm(
        "template", name, str(ROOT / chart), *(one for one in told if one not in of_releases)
    )


def test_there_are_commands_of_each_sort() -> None:
    first = {shlex.split(line)[0] for _, line in COMMANDS}
    assert {"gangsched", "make", "kubectl", "helm"} <= first
    assert len(_CHECKS) >= 3


def test_blocks_say_what_they_are() -> None:
    """A block without a language, or in one that no test reads, would be checked by nobody."""
    known = {"sh", "yaml", "python", "text", "toml"}
    assert [str(block) for block in blocks_everywhere() if block.language not in known] == []
