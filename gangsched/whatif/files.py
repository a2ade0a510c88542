"""Reads files of manifests into documents: YAML or JSON, as `kubectl apply -f` takes them.

Lives here: limits on what is read, and the place of each document for people. Not here: what the documents
mean (manifests).
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import yaml

from gangsched.errors import ConfigError
from gangsched.reading.yaml_bounds import check_yaml
from gangsched.whatif.makers.templates import Json

_MAX_CHARACTERS = 4_000_000
_MAX_DOCUMENTS = 1000
NO_POD = "there is no pod in it, and nothing that creates pods"


class Document(NamedTuple):
    """source: its file; place: where it is in the file, for people."""

    source: str
    place: str
    body: Json


def read_documents(texts: Sequence[tuple[str, str]]) -> list[Document]:
    """texts: (source, YAML). Raises: ConfigError, with its place."""
    found = [one for source, text in texts for one in _documents(source, text)]
    if not found:
        raise ConfigError(NO_POD, source=", ".join(source for source, _ in texts))
    return found


def texts_of(path: str) -> list[tuple[str, str]]:
    """Returns (source, YAML) of a file, or of each manifest right in a directory, as kubectl does. Raises:
    ConfigError."""
    if not os.path.isdir(path):
        return [text_of(path)]
    try:
        names = sorted(name for name in os.listdir(path) if name.endswith((".json", ".yaml", ".yml")))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None
    if not 0 < len(names) <= _MAX_DOCUMENTS:
        some = f"{len(names)} files" if names else "no file"
        raise ConfigError(
            f"is a directory with {some} that ends in .json, .yaml or .yml; 1 to {_MAX_DOCUMENTS} are read",
            source=path,
        )
    return [text_of(os.path.join(path, name)) for name in names]


def text_of(path: str) -> tuple[str, str]:
    """Returns (source, YAML) of a file, or of standard input, `-`. Raises: ConfigError."""
    source = "standard input" if path == "-" else path
    try:
        # A device has no end; a pipe is read, as with a shell's <(helm template …).
        if path == "-":
            return source, sys.stdin.read(_MAX_CHARACTERS + 1)
        with open(path, encoding="utf-8") as file:
            return source, file.read(_MAX_CHARACTERS + 1)
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "it is not text"
        raise ConfigError(f"cannot be read: {why}", source=source) from None


def _documents(source: str, text: str) -> Iterator[Document]:
    if len(text) > _MAX_CHARACTERS:
        raise ConfigError(f"has more than {_MAX_CHARACTERS:,} characters", source=source)
    found: list[Any] = []
    try:
        check_yaml(text)
        for one in yaml.load_all(text, yaml.CSafeLoader):
            is_list = isinstance(one, dict) and str(one.get("kind", "List")).endswith("List")
            found += one["items"] if is_list and isinstance(one.get("items"), list) else [one]
    except yaml.MarkedYAMLError as error:
        # The parser places the end of the text on an extra line.
        at = error.problem_mark
        line = f"line {min(at.line + 1, len(text.splitlines()))}: " if at else ""
        raise ConfigError(f"{line}is not YAML: {error.problem}", source=source) from None
    except ConfigError as error:
        raise ConfigError(error.message, source=source) from None
    except (yaml.YAMLError, RecursionError, ValueError, OverflowError) as error:
        raise ConfigError(
            f"is not YAML that can be read: {' '.join(str(error).split())[:200]}", source=source
        ) from None
    found = [one for one in found if one is not None]
    if len(found) > _MAX_DOCUMENTS:
        raise ConfigError(f"has {len(found)} documents, at most {_MAX_DOCUMENTS} are read", source=source)
    for number, document in enumerate(found, start=1):
        place = source if len(found) == 1 else f"{source}, document {number}"
        if not isinstance(document, dict):
            raise ConfigError("is not an object with apiVersion and kind", source=place)
        _drop_nulls(document)
        yield Document(source, place, document)


def _drop_nulls(found: Any) -> None:
    """Removes fields without a value, as the API server does; its readers never see one."""
    if isinstance(found, dict):
        for key in [key for key, value in found.items() if value is None]:
            del found[key]
    for one in found.values() if isinstance(found, dict) else found if isinstance(found, list) else ():
        _drop_nulls(one)
