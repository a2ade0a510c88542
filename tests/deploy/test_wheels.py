"""Two wheels: what a cluster installs, and the laboratory, which nothing there needs."""

from __future__ import annotations

import ast
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest

from gangsched import __version__
from gangsched.command.commands import COMMANDS
from tests.docs.test_tutorial import TYPED
from tests.support.wheels import LAB, REPO, built, put_in

OF_LAB = sorted(name for name, (module, _) in COMMANDS.items() if module.startswith("gangsched.lab."))


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    return built(tmp_path_factory.mktemp("wheels"))


def modules_in(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return {name for name in archive.namelist() if name.startswith("gangsched/") and name.endswith(".py")}


def test_each_module_is_in_one_of_them_the_laboratory_in_the_second(wheels: list[Path]) -> None:
    product, laboratory = map(modules_in, wheels)
    source = {path.relative_to(REPO).as_posix() for path in (REPO / "gangsched").rglob("*.py")}
    assert product | laboratory == source
    assert laboratory == {name for name in source if name.startswith("gangsched/lab/")}
    assert not product & laboratory


def test_only_the_table_of_commands_finds_the_laboratory_by_name() -> None:
    """Import contracts see no module that is named in a text; in a cluster it would not be found."""
    naming = {
        path.relative_to(REPO).as_posix()
        for path in (REPO / "gangsched").rglob("*.py")
        if not path.is_relative_to(REPO / LAB)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and str(node.value).startswith("gangsched.lab")
    }
    assert naming == {"gangsched/command/commands.py"}


def test_the_second_is_for_the_first_of_the_same_version() -> None:
    first, second = (
        tomllib.loads((REPO / project / "pyproject.toml").read_text())["project"] for project in (".", LAB)
    )
    assert second["version"] == __version__
    assert second["dependencies"] == [f"{first['name']}=={__version__}"]
    assert second["requires-python"] == first["requires-python"]


class Machine:
    """An environment of its own, with what the first wheel needs from the tests' own and no source tree."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder / "venv"], check=True)
        self.python = folder / "venv" / "bin" / "python"
        asked = "import sysconfig; print(sysconfig.get_path('purelib'))"
        own = subprocess.run([self.python, "-c", asked], check=True, capture_output=True, text=True)
        packages = Path(own.stdout.strip())
        # Not searched for further .pth files: the source tree, which the tests have installed, stays out.
        (packages / "tests.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def install(self, wheel: Path) -> None:
        put_in([wheel], f"--prefix={self.folder / 'venv'}")

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.python), "-m", "gangsched", *arguments]
        return subprocess.run(command, cwd=self.folder, capture_output=True, text=True, timeout=60)


def test_a_plugin_of_a_user_is_checked_against_the_wheel_by_mypy_strict(
    wheels: list[Path], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    machine.install(wheels[0])
    (tmp_path / "right.py").write_text(TYPED)
    (tmp_path / "wrong.py").write_text(TYPED.replace("sees_pods = False", "sees_pods = 'no'"))
    mypy = [sys.executable, "-m", "mypy", "--strict", f"--python-executable={machine.python}"]
    done = subprocess.run(
        [*mypy, "right.py", "wrong.py"], cwd=tmp_path, capture_output=True, text=True, timeout=110
    )
    said = [line for line in done.stdout.splitlines() if ": error: " in line]
    assert len(said) == 1, done.stdout
    assert said[0].startswith("wrong.py:")
    assert "SupportsSeesPods" in said[0]


def test_a_command_of_the_laboratory_says_how_to_get_it_and_then_runs(
    wheels: list[Path], tmp_path: Path
) -> None:
    machine = Machine(tmp_path)
    product, laboratory = wheels
    machine.install(product)
    assert OF_LAB == ["apiserver", "bench", "counterfactual", "demo", "import"]
    for command in OF_LAB:
        done = machine.run(command, "--some-flag")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            f"gangsched: {command} is a command of the laboratory, which is not installed: install"
            f" gangsched-lab {__version__}, the wheel beside this one, or run it in a clone of gangsched\n"
        )
    assert all(command in machine.run("--help").stdout for command in OF_LAB)
    assert machine.run("whatif", "--help").returncode == 0
    machine.install(laboratory)
    for command in OF_LAB:
        done = machine.run(command, "--help")
        assert (done.returncode, done.stderr) == (0, "")
