"""The YAML files that the demo submits: found, read, and turned into objects with a path to post them to.

Called by gangsched.lab.demo.stage. Only the kinds that the samples use are known here.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress
from importlib import metadata
from pathlib import Path
from typing import Any

import msgspec
import yaml

from gangsched.errors import ConfigError

HERE = Path("config") / "samples"
INSTALLED = "share/gangsched/samples"  # of gangsched/lab/pyproject.toml
NAMESPACE = "default"
JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
_DEVICES, _CLAIMS = "resource.k8s.io/v1", f"/apis/resource.k8s.io/v1/namespaces/{NAMESPACE}"
_COLLECTIONS = {
    ("v1", "Pod"): f"/api/v1/namespaces/{NAMESPACE}/pods",
    ("batch/v1", "Job"): JOBS,
    ("v1", "Node"): "/api/v1/nodes",
    (_DEVICES, "DeviceClass"): f"/apis/{_DEVICES}/deviceclasses",
    (_DEVICES, "ResourceSlice"): f"/apis/{_DEVICES}/resourceslices",
    (_DEVICES, "ResourceClaimTemplate"): f"{_CLAIMS}/resourceclaimtemplates",
}


class Document(msgspec.Struct, frozen=True):
    """One object of a file and the collection it is posted to."""

    name: str
    collection: str
    body: dict[str, Any]


def find_samples(given: str = "") -> Path:
    """The folder of samples: as given, else that of the source tree, else that which the wheel installed.

    Raises: ConfigError.
    """
    if given:
        folder = Path(given)
        if not folder.is_dir():
            raise ConfigError("there is no such folder", source=f"--samples {given}")
        return folder
    for known in (Path(__file__).parents[3] / HERE, Path.cwd() / HERE, *_installed()):
        if (known / "demo").is_dir():
            return known
    raise ConfigError(
        f"the demo submits the files of {HERE} of the source tree, which a wheel installs as {INSTALLED};"
        " neither is here: install gangsched-lab again, run it in a clone, or give --samples FOLDER"
    )


def _installed() -> Iterator[Path]:
    """Yields where the wheel has put them: below the prefix that it was installed to, whichever that is."""
    yield Path(__file__).parents[3] / INSTALLED  # pip install --target
    with suppress(metadata.PackageNotFoundError):
        for each in metadata.files("gangsched-lab") or ():
            if each.as_posix().endswith(f"{INSTALLED}/gang-ours.yaml"):
                yield Path(str(each.locate())).resolve().parent


def read(folder: Path, name: str, only: Collection[str] = ()) -> list[Document]:
    """The objects of one file, or only those named in `only`. Raises: ConfigError."""
    path = folder / name
    try:
        found = [_document(item, path) for item in yaml.safe_load_all(path.read_text("utf-8")) if item]
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(path)) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigError(f"is not YAML: {' '.join(str(error).split())}", source=str(path)) from None
    missing = set(only) - {document.name for document in found}
    if missing or not found:
        raise ConfigError(f"has no object named {', '.join(sorted(missing)) or 'at all'}", source=str(path))
    return [document for document in found if not only or document.name in only]


def _document(item: object, path: Path) -> Document:
    try:
        if not isinstance(item, dict):
            raise TypeError
        collection = _COLLECTIONS[item["apiVersion"], item["kind"]]
        return Document(str(item["metadata"]["name"]), collection, item)
    except (KeyError, TypeError):
        *others, last = (kind for _, kind in _COLLECTIONS)
        known = f"{', '.join(others)} or {last}"
        raise ConfigError(f"has a document that is no {known} with a name", source=str(path)) from None
