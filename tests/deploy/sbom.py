"""What a lock lists, as CycloneDX: `python -m tests.deploy.sbom` (make sbom), one document for each lock.

Lives here: every locked package with its version and the hashes of its files. Not here: what a base image
contains, and licences, which a lock does not know.
"""

from __future__ import annotations

import json
import re
import sys
import uuid
from pathlib import Path
from typing import Any

from gangsched import __version__
from tests.support.wheels import REPO

LOCKS = ("requirements.runtime", "requirements")
_PIN = re.compile(r"^(?P<name>[\w.-]+)==(?P<version>[^\s;]+)(?P<rest>(?:[^\n]*\\\n)*[^\n]*)", re.MULTILINE)


def document(lock: str, version: str = __version__) -> str:
    """The document about the text of a lock; equal for equal locks."""
    own = f"pkg:pypi/gangsched@{version}"
    components = [_component(**pin.groupdict()) for pin in _PIN.finditer(lock)]
    found = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(uuid.NAMESPACE_URL, own + lock)}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "application",
                "bom-ref": own,
                "name": "gangsched",
                "version": version,
                "purl": own,
            }
        },
        "components": components,
        "dependencies": [{"ref": own, "dependsOn": [one["bom-ref"] for one in components]}],
    }
    return json.dumps(found, indent=2) + "\n"


def _component(name: str, version: str, rest: str) -> dict[str, Any]:
    purl = f"pkg:pypi/{name}@{version}"
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [
            {
                "type": "distribution",
                "url": f"https://pypi.org/simple/{name}/",
                "hashes": [{"alg": "SHA-256", "content": found}],
            }
            for found in re.findall(r"--hash=sha256:([0-9a-f]{64})", rest)
        ],
    }


def main(folder: str = "build/sbom") -> None:
    """Writes one for each lock."""
    Path(folder).mkdir(parents=True, exist_ok=True)
    for lock in LOCKS:
        path = Path(folder) / f"{lock}.cdx.json"
        path.write_text(document((REPO / f"{lock}.lock").read_text()))
        print(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
