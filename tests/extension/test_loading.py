"""Plugins from files and packages: found by name, or refused with file, line and what would be right."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest

from gangsched.command.cli import main
from gangsched.config import default_config, parse_config
from gangsched.core.framework.profile import Profile
from gangsched.errors import ConfigError
from gangsched.extension.loading import KnownPlugins
from gangsched.extension.signatures import check_hooks
from gangsched.plugins import IN_TREE, build_profiles

HEAD = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"
GOOD = """
import msgspec
from gangsched.plugin import SUCCESS

class Args(msgspec.Struct, frozen=True, rename="camel"):
    low_mark: int = 3

class Gate:
    name = "Gate"
    Args = Args

    def __init__(self, args):
        self.low_mark = args.low_mark

    def pre_enqueue(self, pod):
        return SUCCESS

    async def post_bind(self, pod, node_name, handle):
        pass
"""


def file_with(tmp_path: Path, text: str, name: str = "own.py") -> str:
    path = tmp_path / name
    path.write_text(textwrap.dedent(text))
    return str(path)


def profiles_of(known: KnownPlugins, profile: str) -> dict[str, Profile]:
    text = HEAD + "profiles:\n- " + textwrap.indent(textwrap.dedent(profile).strip(), "  ").strip()
    config = parse_config(text, source="own.yaml", plugins=known)
    return build_profiles(config, known.factories)


def test_a_plugin_joins_the_configuration_under_its_name(tmp_path: Path) -> None:
    known = KnownPlugins([file_with(tmp_path, GOOD)])
    assert known["Gate"].points == {"preEnqueue", "postBind"}
    profiles = profiles_of(
        known,
        """
        schedulerName: own
        plugins: {multiPoint: {enabled: [{name: Gate}]}}
        pluginConfig: [{name: Gate, args: {lowMark: 7}}]
        """,
    )
    profile = profiles["own"]
    gate: Any = profile.post_binds[0]
    assert gate.low_mark == 7
    assert [plugin.name for plugin in profile.pre_enqueue] == ["SchedulingGates", "Gate"]
    assert known.unused({"Gate"}) == []
    assert "no profile enables Gate" in known.unused(set())[0]


def test_without_being_named_it_does_nothing(tmp_path: Path) -> None:
    known = KnownPlugins([file_with(tmp_path, GOOD)])
    profiles = profiles_of(known, "schedulerName: own")
    assert "Gate" not in profiles["own"].points.plugins()


def test_its_args_are_checked_as_those_of_ours(tmp_path: Path) -> None:
    known = KnownPlugins([file_with(tmp_path, GOOD)])
    with pytest.raises(ConfigError, match=r"args.lowMarks: unknown field; did you mean lowMark"):
        profiles_of(known, "schedulerName: own\npluginConfig: [{name: Gate, args: {lowMarks: 7}}]")


def test_it_serves_the_points_that_it_has_methods_for(tmp_path: Path) -> None:
    known = KnownPlugins([file_with(tmp_path, GOOD)])
    with pytest.raises(ConfigError, match="Gate does not serve score; it serves postBind, preEnqueue"):
        profiles_of(known, "schedulerName: own\nplugins: {score: {enabled: [{name: Gate}]}}")


WRONG = {
    "syntax": ("class Own:\n    name = 'Own'\n    def score_node(self:\n", r"line 3: "),
    "import": ("import nowhere_to_be_found\n", "line 1: ModuleNotFoundError: No module named"),
    "raises": ("\n\n1 / 0\n", "line 3: ZeroDivisionError: division by zero"),
    "ends the process": ("import sys\nsys.exit(2)\n", "line 2: SystemExit: 2"),
    "nothing in it": ("x = 1\n", "there is no plugin in it: a plugin is a class with a name and a method"),
    "one method of two misspelt": (
        "class Own:\n    name = 'Own'\n    def permit(self, a, b): ...\n"
        "    def scoreNode(self, a, b, c): ...\n",
        r"line 4: Own.scoreNode is not a hook and is never called; did you mean score_node\?",
    ),
    "method misspelt": (
        "class Own:\n    name = 'Own'\n    def score_nodes(self, a, b, c): ...\n",
        "did you mean score_node?",
    ),
    "attribute misspelt": (
        "class Own:\n    name = 'Own'\n    see_pods = False\n    def filter_node(self, a, b, c): ...\n",
        r"line 1: Own.see_pods is not read by anything; did you mean sees_pods\?",
    ),
    "an attribute for a method": (
        "class Own:\n    name = 'Own'\n    spreads = True\n    def score_node(self, a, b, c): ...\n",
        r"line 1: Own.spreads is bool, expected a method: def spreads\(self, template, members\)",
    ),
    "an optional method with other arguments": (
        "class Own:\n    name = 'Own'\n    def score_node(self, a, b, c): ...\n"
        "    def is_stated(self, template): ...\n",
        r"line 4: Own.is_stated should take \(self, template, view\)",
    ),
    "no name": (
        "\nclass Own:\n    def score_node(self, state, pod, node_info): ...\n",
        "line 2: class Own needs a name, as in: name = 'Own'",
    ),
    "arguments": (
        "class Own:\n    name = 'Own'\n    def filter_node(self, pod): ...\n",
        r"line 3: Own.filter_node should take \(self, state, pod, node_info\)",
    ),
    "async permit": (
        "class Own:\n    name = 'Own'\n    async def permit(self, group, siblings): ...\n",
        r"line 3: Own.permit should take \(self, group, siblings, handle\)",
    ),
    "async filter": (
        "class Own:\n    name = 'Own'\n    async def filter_node(self, state, pod, node_info): ...\n",
        "line 3: Own.filter_node is async, and runs in the middle of a decision",
    ),
    "half a reserve": (
        "class Own:\n    name = 'Own'\n    def reserve(self, state, group, placements): ...\n",
        "Own.reserve needs unreserve as well",
    ),
    "name taken": (
        "class Own:\n    name = 'NodeName'\n    def score_node(self, state, pod, node_info): ...\n",
        r"line 1: the name NodeName is taken \(gangsched's own\)",
    ),
    "args": (
        "class Own:\n    name = 'Own'\n    Args = dict\n    def pre_enqueue(self, pod): ...\n",
        "Own.Args is not a msgspec.Struct",
    ),
}


@pytest.mark.parametrize(("text", "said"), WRONG.values(), ids=WRONG)
def test_what_is_wrong_with_a_file_is_reported_when_it_is_loaded(
    tmp_path: Path, text: str, said: str
) -> None:
    path = file_with(tmp_path, text)
    with pytest.raises(ConfigError, match=said) as caught:
        KnownPlugins([path])
    assert str(caught.value).startswith(f"--plugin {path}: ")


def test_the_plugins_of_ours_have_the_hooks_that_are_checked() -> None:
    """What is right for ours is not refused in a plugin of outside."""
    (profile,) = build_profiles(default_config(IN_TREE)).values()
    for plugin in profile.plugins:
        assert check_hooks(type(plugin), plugin.name)


def test_a_plugin_that_cannot_be_made_gives_the_place(tmp_path: Path) -> None:
    text = """
    class Own:
        name = "Own"

        def __init__(self):
            raise RuntimeError("no licence")

        def pre_enqueue(self, pod): ...
    """
    path = file_with(tmp_path, text)
    known = KnownPlugins([path])
    with pytest.raises(ConfigError, match=f"Own could not be made with no arguments: .*{path}, line 6: "):
        profiles_of(known, "schedulerName: own\nplugins: {multiPoint: {enabled: [{name: Own}]}}")


@pytest.mark.parametrize(
    ("attribute", "said"),
    [
        (
            "def cures(self, change, template, view): ...\n    cured_by = ['NODE_ADDED']",
            "Own.cured_by is list, expected a Change",
        ),
        ("watches = 'configmaps'", "Own.watches is str, expected a tuple of texts"),
        ("signed_annotations = {7}", "Own.signed_annotations is set, expected a set of texts"),
        ("sees_pods = 'no'", "Own.sees_pods is str, expected True or False"),
        ("usage_labels = 'team'", "Own.usage_labels is str, expected a tuple of texts"),
        ("hook_timeout_s = float('nan')", "Own.hook_timeout_s is float, expected a number of seconds"),
    ],
)
def test_what_is_read_of_a_plugin_is_checked_when_it_is_made(
    tmp_path: Path, attribute: str, said: str
) -> None:
    text = f"class Own:\n    name = 'Own'\n    {attribute}\n    def pre_enqueue(self, pod): ...\n"
    known = KnownPlugins([file_with(tmp_path, text)])
    with pytest.raises(ConfigError, match=f"line 1: {said}"):
        profiles_of(known, "schedulerName: own\nplugins: {multiPoint: {enabled: [{name: Own}]}}")


def test_what_is_read_for_a_hook_that_a_plugin_has_not_may_be_anything(tmp_path: Path) -> None:
    text = "class Own:\n    name = 'Own'\n    cured_by = ()\n    def pre_enqueue(self, pod): ...\n"
    known = KnownPlugins([file_with(tmp_path, text)])
    profiles_of(known, "schedulerName: own\nplugins: {multiPoint: {enabled: [{name: Own}]}}")


@pytest.mark.parametrize("name", ["none.py", "x" * 300])
def test_a_file_that_is_not_there_or_cannot_be(tmp_path: Path, name: str) -> None:
    with pytest.raises(ConfigError, match="is not a file"):
        KnownPlugins([str(tmp_path / name)])


def test_two_files_with_one_name(tmp_path: Path) -> None:
    one, two = file_with(tmp_path, GOOD), file_with(tmp_path, GOOD, "two.py")
    with pytest.raises(ConfigError, match=f"the name Gate is taken .--plugin {one}"):
        KnownPlugins([one, two])


def install(tmp_path: Path, entry_points: str, module: str, *, package: str = "own") -> None:
    """A package as pip leaves it."""
    (tmp_path / f"{package}_plugins.py").write_text(module)
    info = tmp_path / f"{package}-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {package}\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(f"[gangsched.plugins]\n{entry_points}\n")


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def test_an_installed_package_is_found_by_the_name_of_its_entry_point(site: Path) -> None:
    install(site, "Gate = own_plugins:Gate\nBroken = own_plugins:Nobody", GOOD)
    known = KnownPlugins()
    assert "own_plugins" not in sys.modules, "a scheduler whose configuration names none imports none"
    profiles = profiles_of(known, "schedulerName: own\nplugins: {preEnqueue: {enabled: [{name: Gate}]}}")
    assert [plugin.name for plugin in profiles["own"].pre_enqueue][-1] == "Gate"
    assert known.source("Gate") == "entry point own_plugins:Gate of own"
    with pytest.raises(ConfigError, match=r"own_plugins:Nobody of own: .*has no attribute 'Nobody'"):
        known.get("Broken")
    del sys.modules["own_plugins"]


def test_an_entry_point_of_another_name_and_one_that_is_there_twice(site: Path) -> None:
    install(site, "Door = own_plugins:Gate\nGate = own_plugins:Gate", GOOD)
    install(site, "Gate = other_plugins:Gate", GOOD, package="other")
    with pytest.raises(ConfigError, match="is not a plugin class with name = 'Door'"):
        KnownPlugins().get("Door")
    with pytest.raises(ConfigError, match=r"plugin Gate is installed twice: .* of o.* and .*; keep one"):
        KnownPlugins().get("Gate")
    sys.modules.pop("own_plugins", None)


def test_a_name_that_nobody_has_is_unknown_with_the_nearest(tmp_path: Path) -> None:
    known = KnownPlugins([file_with(tmp_path, GOOD)])
    with pytest.raises(ConfigError, match=r"unknown plugin 'Gates'; did you mean Gate\?"):
        profiles_of(known, "schedulerName: own\nplugins: {multiPoint: {enabled: [{name: Gates}]}}")
    assert list(known)[: len(IN_TREE)] == list(IN_TREE)


def test_check_config_shows_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plugin, config = file_with(tmp_path, GOOD), tmp_path / "own.yaml"
    config.write_text(HEAD + "profiles: [{plugins: {multiPoint: {enabled: [{name: Gate}]}}}]\n")
    assert main(["check-config", "--plugin", plugin, str(config)]) == 0
    said = capsys.readouterr().out
    assert "SchedulingGates, Gate" in said or "Gate" in said.split("preEnqueue")[1].splitlines()[0]
    assert f"from outside: Gate: --plugin {plugin}" in said
    assert main(["check-config", "--plugin", str(tmp_path / "none.py"), str(config)]) == 2
    assert "none.py: is not a file" in capsys.readouterr().err
