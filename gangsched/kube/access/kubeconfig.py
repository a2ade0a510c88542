"""Finds the first mistake in a kubeconfig: its file, its field, and what would be correct.

Lives here: searching for the mistake after the loaders have failed. Not here: reading a good file
(kube.access.loaders, which calls this). Good files are not checked, and what kubectl accepts is no mistake
here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

from gangsched.errors import ConfigError
from gangsched.reading.strict import nearest, read_documents

_BODIES = {"clusters": "cluster", "users": "user", "contexts": "context"}
_FORM = "a kubeconfig has clusters, users, contexts and a current-context"


class _Entry(NamedTuple):
    file: str
    path: str
    body: dict[str, Any]


def files_of(paths: str) -> list[str]:
    """The files that a KUBECONFIG lists."""
    return [os.path.expanduser(path) for path in paths.split(os.pathsep) if path]


def find_mistake(paths: str, context: str, *, needs_server: bool = True) -> None:
    """Returns when nothing is found. Raises: ConfigError, the first mistake."""
    documents = [(path, _document(path)) for path in files_of(paths) if os.path.exists(path)]
    for path, document in documents:
        if not document:
            raise ConfigError(f"is empty; {_FORM}", source=path)
    entries = {kind: _entries(documents, kind) for kind in _BODIES}
    first = documents[0][0] if documents else paths
    if not entries["contexts"]:
        raise ConfigError(f"lists no contexts; {_FORM}", source=first, path="contexts")
    source, path = "--context", ""
    if not context:
        source, path = first, "current-context"
        for file, document in documents:
            if document.get("current-context"):
                source, context = file, document["current-context"]
                break
    if not isinstance(context, str):
        raise ConfigError(f"must be the name of a context, not {type_of(context)}", source=source, path=path)
    if not context:
        raise ConfigError(
            f"is not set; write the name of a context, or give --context: {_names(entries['contexts'])}",
            source=source,
            path=path,
        )
    chosen = _named(entries, "contexts", context, source=source, path=path)
    cluster = _text(chosen, "cluster")
    if not cluster:
        raise ConfigError(
            f"is not set; the clusters are: {_names(entries['clusters'])}",
            source=chosen.file,
            path=f"{chosen.path}.cluster",
        )
    server = _named(entries, "clusters", cluster, source=chosen.file, path=f"{chosen.path}.cluster")
    if needs_server and not _text(server, "server"):
        raise ConfigError(
            "is not set; it is the API server's address, as https://HOST:6443",
            source=server.file,
            path=f"{server.path}.server",
        )
    user = _text(chosen, "user")
    if user:
        _named(entries, "users", user, source=chosen.file, path=f"{chosen.path}.user")


def names_nothing(paths: str) -> bool:
    """Whether the files exist, are readable, and have no context and no cluster."""
    try:
        documents = [(path, _document(path)) for path in files_of(paths) if os.path.exists(path)]
        return not any(_entries(documents, kind) for kind in _BODIES)
    except ConfigError:
        return False


def _document(path: str) -> dict[str, Any]:
    try:
        documents = read_documents(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=path) from None
    except UnicodeDecodeError:
        raise ConfigError(f"is not text; {_FORM}", source=path) from None
    except ConfigError as error:
        raise ConfigError(f"{error.message}; {_FORM}", source=path) from None
    if len(documents) > 1:
        raise ConfigError("has several YAML documents; a kubeconfig is one", source=path)
    return documents[0] if documents else {}


def _entries(documents: list[tuple[str, dict[str, Any]]], kind: str) -> dict[str, _Entry]:
    """Returns the entries by name; the first file with a name wins, as in kubectl. Raises: ConfigError."""
    found: dict[str, _Entry] = {}
    for file, document in documents:
        for name, entry in _read(file, document.get(kind), kind):
            found.setdefault(name, entry)
    return found


def _read(file: str, listed: Any, kind: str) -> Iterator[tuple[str, _Entry]]:
    if listed is None:
        return
    if not isinstance(listed, list):
        raise ConfigError(f"must be a list, not {type_of(listed)}", source=file, path=kind)
    field = _BODIES[kind]
    for i, item in enumerate(listed):
        path = f"{kind}[{i}]"
        if not isinstance(item, dict):
            raise ConfigError(f"must have name and {field}, and is {type_of(item)}", source=file, path=path)
        name = item.get("name")
        if not isinstance(name, str) or not name:
            raise ConfigError(f"must be text, not {type_of(name)}", source=file, path=f"{path}.name")
        body = {} if item.get(field) is None else item[field]
        if not isinstance(body, dict):
            raise ConfigError(f"must be a mapping, not {type_of(body)}", source=file, path=f"{path}.{field}")
        yield name, _Entry(file, f"{path}.{field}", body)


def _named(entries: dict[str, dict[str, _Entry]], kind: str, name: str, *, source: str, path: str) -> _Entry:
    known = entries[kind]
    if name in known:
        return known[name]
    there = f"there are: {_names(known)}" if known else f"the file lists no {kind}"
    raise ConfigError(
        f"there is no {_BODIES[kind]} {name!r}{nearest(name, known)}; {there}", source=source, path=path
    )


def _text(entry: _Entry, field: str) -> str:
    value = entry.body.get(field)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise ConfigError(
            f"must be text, not {type_of(value)}", source=entry.file, path=f"{entry.path}.{field}"
        )
    return value


def type_of(value: Any) -> str:
    names = {"NoneType": "nothing", "dict": "a mapping", "list": "a list", "str": "text", "bool": "a boolean"}
    return names.get(type(value).__name__, "a number")


def _names(known: dict[str, _Entry]) -> str:
    shown = [repr(name) for name in list(known)[:10]]
    return ", ".join(shown) + (", …" if len(known) > 10 else "") or "none"
