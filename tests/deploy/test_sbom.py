"""The SBOM names every locked package, with its version and its hashes, and no other."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from gangsched import __version__
from tests.deploy import sbom
from tests.deploy.test_image import REPO, pins


@pytest.mark.parametrize("lock", sbom.LOCKS)
def test_every_locked_package_is_named_with_its_hashes_and_no_other(
    lock: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sbom.main(str(tmp_path))
    assert str(tmp_path / f"{lock}.cdx.json") in capsys.readouterr().out.split()
    document = json.loads((tmp_path / f"{lock}.cdx.json").read_text())
    found = {(one["name"], one["version"]) for one in document["components"]}
    assert found == pins(f"{lock}.lock")
    assert [one["purl"] for one in document["components"]] == document["dependencies"][0]["dependsOn"]
    hashes = {
        one["content"]
        for component in document["components"]
        for reference in component["externalReferences"]
        for one in reference["hashes"]
    }
    assert hashes == set(re.findall(r"--hash=sha256:([0-9a-f]{64})", (REPO / f"{lock}.lock").read_text()))
    root = document["metadata"]["component"]
    assert (root["name"], root["version"]) == ("gangsched", __version__)
    assert (document["bomFormat"], document["specVersion"]) == ("CycloneDX", "1.6")
