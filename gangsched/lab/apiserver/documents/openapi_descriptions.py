"""Descriptions of fields for `kubectl explain`, from the docstrings of the installed kubernetes-asyncio
models.

Lives here: finding a schema's model, and its fields' sentences, by reading the model's file; nothing is
imported, and nothing is read before a client asks. A kind missing in the models (they follow an older
Kubernetes) has no descriptions, and neither do fields that are objects themselves. Without the package there
are none at all. Called by openapi.py.
"""

from __future__ import annotations

import re
from functools import cache
from importlib.machinery import PathFinder
from pathlib import Path

_GETTER = re.compile(r'"""Gets the (\w+) of this \w+\.  # noqa: E501\n(.*?):return:', re.DOTALL)
_JSON_NAMES = re.compile(r"attribute_map = \{(.*?)\}", re.DOTALL)
_JSON_NAME = re.compile(r"'(\w+)': '([^']+)'")


@cache
def of_fields(schema: str) -> dict[str, str]:
    """Returns field -> description, for a schema like `io.k8s.api.core.v1.PodSpec`; empty if unknown."""
    text = _model(schema)
    names = _JSON_NAMES.search(text)
    if names is None:
        return {}
    known = dict(_JSON_NAME.findall(names[1]))
    found = {}
    for name, words in _GETTER.findall(text):
        # A quotation mark is escaped in a docstring's source.
        sentence = words.replace("# noqa: E501", "").replace('\\"', '"').strip()
        if sentence and name in known:
            found[known[name]] = sentence
    return found


def _model(schema: str) -> str:
    folder = _models()
    if folder is None or schema.count(".") < 2:
        return ""
    rest, version, name = schema.rsplit(".", 2)
    group = rest.rpartition(".")[2]
    for file in (f"{version}_{_snake(name)}.py", f"{group}_{version}_{_snake(name)}.py"):
        path = folder / file
        if path.is_file():
            return path.read_text(encoding="utf-8")
    return ""


@cache
def _models() -> Path | None:
    # Not find_spec: if a client of ours runs in the same process, the package is loaded without a spec.
    spec = PathFinder.find_spec("kubernetes_asyncio")
    if spec is None or not spec.submodule_search_locations:
        return None
    folder = Path(spec.submodule_search_locations[0]) / "client" / "models"
    return folder if folder.is_dir() else None


def _snake(name: str) -> str:
    """Returns the name that OpenAPI Generator gives a model's file."""
    name = re.sub(r"([A-Z]+)([A-Z][a-z])", r"\1_\2", name)
    return re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name).lower()
