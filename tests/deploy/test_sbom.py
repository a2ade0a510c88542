"""`make sbom` names every locked package, with its version and its hashes, and no other."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from gangsched import __version__
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE
from tests.deploy.test_image import REPO, pins

pytestmark = pytest.mark.timeout(300)  # a busy machine installs for longer than other tests run
LOCKS = ("requirements.runtime", "requirements")


@pytest.fixture(scope="module")
def written() -> dict[str, Any]:
    """Each lock's document; its tool is installed from the package index once."""
    if shutil.which("make") is None:
        pytest.skip("no make")
    done = subprocess.run(["make", "sbom"], cwd=REPO, capture_output=True, text=True, timeout=280)
    if done.returncode != 0:
        if os.environ.get(REQUIRE_VARIABLE) != "1" and "No matching distribution" in done.stderr:
            pytest.skip(f"the tool is not to be had here: {done.stderr.strip().splitlines()[-1]}")
        pytest.fail(done.stdout + done.stderr, pytrace=False)
    return {lock: json.loads((REPO / "build" / "sbom" / f"{lock}.cdx.json").read_text()) for lock in LOCKS}


@pytest.mark.parametrize("lock", LOCKS)
def test_every_locked_package_is_named_and_no_other(written: dict[str, Any], lock: str) -> None:
    document = written[lock]
    found = {(one["name"], one["version"]) for one in document["components"]}
    assert found == pins(f"{lock}.lock")
    assert {one["purl"] for one in document["components"]} == {
        f"pkg:pypi/{name}@{version}" for name, version in found
    }


@pytest.mark.parametrize("lock", LOCKS)
def test_it_has_the_hashes_of_the_lock_and_says_what_it_is_of(written: dict[str, Any], lock: str) -> None:
    document = written[lock]
    hashes = {
        one["content"]
        for component in document["components"]
        for reference in component["externalReferences"]
        for one in reference.get("hashes", ())
    }
    assert hashes == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", Path(REPO / f"{lock}.lock").read_text()))
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("gangsched", __version__)
    assert document["bomFormat"] == "CycloneDX"


def test_it_is_the_same_each_time(written: dict[str, Any]) -> None:
    path = REPO / "build" / "sbom" / "requirements.runtime.cdx.json"
    before = path.read_bytes()
    subprocess.run(["make", "sbom"], cwd=REPO, check=True, capture_output=True, timeout=280)
    assert path.read_bytes() == before
