"""Runs the tests that a supported Kubernetes must pass against its API server: `python -m tests.versions`.

Lives here: building kube-apiserver of another release from its module, which tests are run, the table of
docs/operating.md. Not here: the release that all tests run against (tests/controlplane/go.mod). Called by
`make versions`, outside of CI: a release that has not been built yet takes minutes.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets, build

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "tests" / "versions.json"
PAGE = ROOT / "docs" / "operating.md"
VERSIONS = ("v1.34.4", "v1.35.4", "v1.36.3", assets.KUBERNETES_VERSION)
SUITES = {
    "main job": ("tests/real/test_main_job.py",),
    "reserved keys": ("tests/deploy/test_reserved_keys.py",),
    "agent's policies": ("tests/agent/test_deploy.py",),
    "claims of devices": (
        "tests/real/test_resource_claims.py",
        "tests/real/test_resource_claims_of_groups.py",
        "tests/real/test_resource_claims_preempted.py",
        "tests/real/test_resource_claims_rights.py",
    ),
    "hand-off by environment": ("tests/deploy/test_env_hand_off.py",),
    "API contract": ("tests/contract",),
}
_BEGIN, _END = "<!-- versions: written by `make versions` -->\n", "<!-- end: versions -->\n"
_SERVER = "k8s.io/kubernetes/cmd/kube-apiserver"


def module_of(version: str) -> assets.Module:
    """A Go module that builds this release, in the cache.

    k8s.io/kubernetes names its staging modules by relative replaces, which do not reach a module that depends
    on it: each is replaced by its release, v0.34.4 of v1.34.4. Raises: CannotBuild.
    """
    directory = assets.cache_folder().parents[1] / "modules" / version
    module = assets.Module(
        name="releases", version=version, directory=directory, required=("kube-apiserver",)
    )
    if (directory / "go.sum").is_file():
        return module
    directory.mkdir(parents=True, exist_ok=True)
    go = str(build.find_go())
    download = _go(go, "mod", "download", "-json", f"k8s.io/kubernetes@{version}", at=directory)
    pinned = Path(json.loads(download)["GoMod"]).read_text()
    staging = re.findall(r"^\s*(k8s\.io/\S+) => \./staging", pinned, re.MULTILINE)
    settings = re.findall(r"^(?:go|godebug) .*$", pinned, re.MULTILINE)
    released = version.replace("v1.", "v0.")
    lines = [
        "module gangsched.test/release",
        *settings,
        f"tool {_SERVER}",
        f"require k8s.io/kubernetes {version}",
        *(f"replace {name} => {name} {released}" for name in staging),
    ]
    (directory / "go.mod").write_text("\n".join(lines) + "\n")
    _go(go, "mod", "tidy", at=directory)
    return module


def _go(go: str, *arguments: str, at: Path) -> str:
    env = build.go_environment(Path(go))
    done = subprocess.run([go, *arguments], cwd=at, env=env, capture_output=True, text=True)
    if done.returncode != 0:
        raise build.CannotBuild(f"go {' '.join(arguments)}: {done.stderr.strip()}")
    return done.stdout


def servers_of(version: str) -> Path:
    """A folder with this release's kube-apiserver and the pinned rest. Raises: ConfigError."""
    pinned = assets.find().folder
    if version == assets.KUBERNETES_VERSION:
        return pinned
    tool = build.Tool(name="kube-apiserver", package=_SERVER, expected_s=205)
    recipe = build.Recipe(
        module=module_of(version),
        tools=(tool,),
        ldflags=build.kubernetes_ldflags(version),
        cold_after="kube-apiserver",
        cold_bytes=build.COLD_DISK_BYTES,
    )
    folder = build.ensure(recipe)
    for there in pinned.iterdir():
        if not (link := folder / there.name).exists() and assets.is_executable(there):
            link.symlink_to(there)
    return folder


def run(version: str, suites: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Each suite's counts, and the tests that failed."""
    folder = servers_of(version)
    env = {**os.environ, assets.ASSETS_VARIABLE: str(folder), build.REQUIRE_VARIABLE: "1"}
    found = {}
    for name in suites:
        with tempfile.TemporaryDirectory() as directory:
            report = Path(directory) / "report.xml"
            command = [
                sys.executable,
                "-m",
                "pytest",
                "-q",
                "-m",
                "real",
                f"--junit-xml={report}",
                *SUITES[name],
            ]
            subprocess.run(command, cwd=ROOT, env=env, stdout=subprocess.DEVNULL)
            found[name] = counted(report)
        print(f"{version} {name}: {found[name]}", flush=True)
    return found


def counted(report: Path) -> dict[str, Any]:
    """What a JUnit report comes to; a test that broke in its fixture too stands there twice."""
    ended: dict[str, str] = {}
    for case in ET.parse(report).getroot().iter("testcase"):
        name = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        failed = case.find("failure") is not None or case.find("error") is not None
        if failed or ended.get(name) != "failed":
            ended[name] = "failed" if failed else "skipped" if case.find("skipped") is not None else "passed"
    outcomes = list(ended.values())
    return {
        "passed": outcomes.count("passed"),
        "skipped": outcomes.count("skipped"),
        "failed": sorted(name for name, outcome in ended.items() if outcome == "failed"),
    }


def table(results: dict[str, dict[str, dict[str, Any]]]) -> str:
    """Passed of all that this version is asked for, and how many are about what later ones have."""
    lines = ["| Kubernetes | " + " | ".join(SUITES) + " |", "|---" * (len(SUITES) + 1) + "|"]
    for version in sorted(results, key=_minor):
        cells = [_cell(results[version].get(name)) for name in SUITES]
        lines.append(f"| {version.removeprefix('v')} | " + " | ".join(cells) + " |")
    return "\n".join(lines) + "\n"


def _minor(version: str) -> int:
    return int(version.split(".")[1])


def _cell(counts: dict[str, Any] | None) -> str:
    if counts is None:
        return "not run"
    n_failed = len(counts["failed"])
    if not counts["passed"] and not n_failed:
        return "not offered"
    return f"{counts['passed']} of {counts['passed'] + n_failed}" + (
        f", {counts['skipped']} need a later one" if counts["skipped"] else ""
    )


def with_table(page: str, made: str) -> str:
    """The page with this table in the place of the one that it has."""
    before, rest = page.split(_BEGIN)
    return f"{before}{_BEGIN}\n{made}\n{_END}{rest.split(_END)[1]}"


def main(argv: Sequence[str] | None = None) -> int:
    """0 where nothing failed. What was not run this time stays as it was when it was run last."""
    parser = argparse.ArgumentParser(prog="python -m tests.versions", description=__doc__)
    parser.add_argument("versions", nargs="*", default=VERSIONS, metavar="VERSION", help="v1.34.4, ...")
    parser.add_argument(
        "--suite", action="append", choices=list(SUITES), help="this one alone; several times"
    )
    arguments = parser.parse_args(argv)
    results = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    failed = 0
    for version in arguments.versions:
        try:
            found = run(version, arguments.suite or list(SUITES))
        except ConfigError as error:
            print(f"versions: {error}", file=sys.stderr)
            return 1
        of_others = {one: of for one, of in results.items() if _minor(one) != _minor(version)}
        results = of_others | {version: {**results.get(version, {}), **found}}
        failed += sum(len(counts["failed"]) for counts in found.values())
        RESULTS.write_text(json.dumps(results, indent=1, sort_keys=True) + "\n")
        PAGE.write_text(with_table(PAGE.read_text(), table(results)))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
