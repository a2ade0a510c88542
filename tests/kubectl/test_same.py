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
    for command, stdin, patient in SCRIPTS[script]:
        arguments = shlex.split(command.replace("NAMESPACE", namespace))
        text = stdin.replace("NAMESPACE", namespace)
        said = [(kubectl.patiently if patient else kubectl.run)(arguments, text) for kubectl in both]
        embedded, real = (comparable(each, namespace) for each in said)
        assert embedded == real, f"kubectl {command}"
