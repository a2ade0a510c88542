"""The public face of plugins is what was recorded, and the framework asks for nothing that is not in it."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from gangsched import plugin
from gangsched.extension.signatures import HOOKS, members
from tests.extension import plugin_api
from tests.support.wheels import REPO


def test_it_is_as_recorded_and_the_changelog_names_its_version() -> None:
    changed = plugin_api.changes()
    assert not changed, f"gangsched.plugin is not what tests/extension/plugin_api.txt says:\n\n{changed}"
    assert plugin_api.is_noted(plugin.API_VERSION)


@pytest.fixture
def recorded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A record of its own, as it is now."""
    path = tmp_path / "plugin_api.txt"
    path.write_text(plugin_api.face())
    monkeypatch.setattr(plugin_api, "RECORD", path)
    return path


def test_a_change_is_shown_with_what_to_do_and_recorded_only_under_another_version(
    recorded: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = recorded.read_text()
    recorded.write_text(now.replace("concerns(self, template: PodTemplate)", "concerns(self, pod: Pod)"))
    said = plugin_api.changes()
    assert "-    concerns(self, pod: Pod) -> bool\n+    concerns(self, template: PodTemplate) -> bool" in said
    assert "raise API_VERSION in gangsched/plugin.py" in said
    assert "say in CHANGELOG.md" in said
    assert plugin_api.accept() == f"API_VERSION is still {plugin.API_VERSION}"
    monkeypatch.setattr(plugin, "API_VERSION", "99.0")
    assert plugin_api.accept() == 'CHANGELOG.md has no word of "Plugin API 99.0"'
    monkeypatch.setattr(plugin_api, "is_noted", lambda version: True)
    assert plugin_api.accept() == ""
    assert recorded.read_text() == plugin_api.face()


def test_each_hook_belongs_to_a_protocol_and_each_protocol_method_is_a_hook() -> None:
    assert members().hooks.keys() == HOOKS.keys()
    kinds = [
        getattr(plugin, name)
        for name in plugin.__all__
        if name.startswith("Supports") or name.endswith("Plugin")
    ]
    for kind in kinds:
        for name in vars(kind):
            assert name.startswith("_") or name in HOOKS or name in members().attributes, (kind, name)


def test_the_framework_asks_for_what_a_plugin_may_have_by_its_protocol_alone() -> None:
    """A member asked for by its name in a text would be unknown to type checkers and to the loader."""
    known = {*HOOKS, *members().attributes, "over_nodes", "usage_tracker", "metrics_server_s"} - {"name"}
    paths = [
        path for room in ("core", "plugins", "web") for path in (REPO / "gangsched" / room).rglob("*.py")
    ]
    asking = [
        f"{path.relative_to(REPO)}:{node.lineno}"
        for path in [*paths, REPO / "gangsched" / "extension" / "runner.py"]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id in ("getattr", "hasattr")
        and isinstance(node.args[1], ast.Constant)
        and node.args[1].value in known
    ]
    assert asking == []
