"""The same commands print the same, on the embedded API server and on a real one."""

from __future__ import annotations

import shlex

import pytest

from tests.kubectl.run import Kubectl, comparable
from tests.kubectl.scripts import SCRIPTS

pytestmark = pytest.mark.real


@pytest.mark.parametrize("script", SCRIPTS)
def test_a_script_prints_the_same(
    both: tuple[Kubectl, Kubectl], script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBE_EDITOR", "sed -i s/red/purple/")
    namespace = both[0].namespace
    for command, stdin in SCRIPTS[script]:
        arguments = shlex.split(command.replace("NAMESPACE", namespace))
        embedded, real = (
            comparable(kubectl.run(arguments, stdin.replace("NAMESPACE", namespace)), namespace)
            for kubectl in both
        )
        assert embedded == real, f"kubectl {command}"
