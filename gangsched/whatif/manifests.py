"""Reads manifests, YAML files as people write them, into the events that a core gets for such objects.

Adds what the API server would add, as far as scheduling reads it: a namespace, limits as requests, a
PriorityClass's number. Not the changes by webhooks and policies.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec
import yaml

from gangsched.config.strict import nearest
from gangsched.config.yaml_bounds import check_yaml
from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError, ParseError
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.model.events import Event, ObjectRefused
from gangsched.model.objects import Pod
from gangsched.model.owners import OWNER_KINDS
from gangsched.whatif import controllers

Json = dict[str, Any]
_MAX_CHARACTERS = 4_000_000
_MAX_DOCUMENTS = 1000
_MAX_PODS = 10_000
_NO_POD = "there is no pod in it, and nothing that creates pods"


class Manifests(NamedTuple):
    """others: events of groups and controllers, which the core gets before the pods."""

    pods: Sequence[Pod]
    others: Sequence[Event]


def kinds_of(scheduler: Scheduler) -> tuple[Kind, ...]:
    """Returns all kinds that the core can process, with every controller from which it may infer gangs."""
    plain = all_kinds(scheduler.watches)
    owners = (followed(one.followed_as) for one in OWNER_KINDS.values())
    return (*plain, *(one for one in owners if one.name not in {kind.name for kind in plain}))


class Document(NamedTuple):
    """source: its file; place: where it is in the file, for people."""

    source: str
    place: str
    body: Json


def read_manifests(
    documents: Sequence[Document],
    kinds: Sequence[Kind],
    priorities: Mapping[str, int],
    *,
    namespace: str = "default",
) -> Manifests:
    """kinds: those that the core watches; priorities: by PriorityClass; namespace: for objects without one.
    Raises: ConfigError, with its place.
    """
    pods: list[Pod] = []
    others: list[Event] = []
    by_name = {(kind.group, kind.kind): kind for kind in kinds if not kind.has_no_type}
    for _, place, document in documents:
        try:
            _complete(document, len(pods) + len(others), namespace)
            kind = document["kind"]
            group = document["apiVersion"].rpartition("/")[0]
            if (followed := by_name.get((group, kind))) is not None and kind != "Pod":
                others.append(_event(followed, document))
            elif kind not in controllers.KINDS:
                raise ConfigError(_unknown(kind, kinds), path="kind")
            if kind in controllers.KINDS:
                pods += _pods(document, by_name["", "Pod"], len(pods), priorities)
        except ConfigError as error:
            raise ConfigError(error.message, source=place, path=error.path) from None
    if not pods:
        raise ConfigError(_NO_POD, source=", ".join(dict.fromkeys(one.source for one in documents)))
    return Manifests(pods, others)


def read_documents(texts: Sequence[tuple[str, str]]) -> list[Document]:
    """texts: (source, YAML). Raises: ConfigError, with its place."""
    found = [one for source, text in texts for one in _documents(source, text)]
    if not found:
        raise ConfigError(_NO_POD, source=", ".join(source for source, _ in texts))
    return found


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
            found += one["items"] if isinstance(one, dict) and isinstance(one.get("items"), list) else [one]
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
        yield Document(source, place, document)


def _complete(document: Json, number: int, namespace: str) -> None:
    """Adds the fields that every object on a server has."""
    for name in ("apiVersion", "kind"):
        if not isinstance(document.get(name), str) or not document[name]:
            raise ConfigError("is missing", path=name)
    meta = document.setdefault("metadata", {})
    if not isinstance(meta, dict):
        raise ConfigError("is not an object", path="metadata")
    if not meta.get("name") and isinstance(meta.get("generateName"), str):
        meta["name"] = f"{meta['generateName']}{number}"
    if not isinstance(meta.get("name"), str) or not meta["name"]:
        raise ConfigError("is missing", path="metadata.name")
    meta.setdefault("namespace", namespace)
    meta |= {"uid": f"whatif-{number}-{meta['name']}", "resourceVersion": "1"}


def _unknown(kind: str, kinds: Sequence[Kind]) -> str:
    known = sorted({*controllers.KINDS, *(one.kind for one in kinds if one.name.startswith("podgroups."))})
    return (
        f"{kind!r} cannot be made into pods here{nearest(kind, known)}: {', '.join(known)} can; of another"
        " kind, give the pods that it creates"
    )


def _event(kind: Kind, document: Json) -> Event:
    version = document["apiVersion"].rpartition("/")[2]
    if kind.versions and version not in kind.versions:
        read = ", ".join(kind.versions)
        raise ConfigError(f"{kind.kind} is read in version {read}, not {version!r}", path="apiVersion")
    page = {
        "kind": f"{kind.kind}List",
        "apiVersion": document["apiVersion"],
        "metadata": {"resourceVersion": "1"},
        "items": [document],
    }
    try:
        items, refused, _ = kind.read_page(msgspec.json.encode(page), version)
    except (msgspec.MsgspecError, TypeError, ValueError, RecursionError) as error:
        raise ConfigError(f"is no {kind.kind}: {str(error)[:200]}") from None
    if refused:
        raise ConfigError(f"is no {kind.kind}: {_why(refused[0])}")
    return kind.added(items[0], kind.api_version(version))


def _why(refused: Event) -> str:
    return refused.message if isinstance(refused, ObjectRefused) else "it cannot be read"


def _pods(document: Json, kind: Kind, number: int, priorities: Mapping[str, int]) -> list[Pod]:
    found: list[Pod] = []
    namespace = document["metadata"]["namespace"]
    created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    for pod in controllers.pods_of(document):
        if number + len(found) >= _MAX_PODS:
            raise ConfigError(f"makes more than {_MAX_PODS} pods")
        meta, spec = pod["metadata"], pod.get("spec")
        if not isinstance(spec, dict):
            raise ConfigError("is missing, or is not an object", path="spec")
        meta |= {
            "namespace": namespace,
            "uid": f"whatif-pod-{number + len(found)}",
            "resourceVersion": "1",
            "creationTimestamp": created,
        }
        _default(spec, priorities)
        try:
            found.append(kind.decode_object(msgspec.json.encode({**pod, "status": {"phase": "Pending"}})))
        except (msgspec.MsgspecError, ParseError, TypeError, ValueError, RecursionError) as error:
            raise ConfigError(f"pod {meta.get('name')}: {str(error)[:200]}") from None
    return found


def _default(spec: Json, priorities: Mapping[str, int]) -> None:
    """Sets defaults like kube-apiserver: limits become missing requests; a class gives its number."""
    for container in (*_containers(spec, "containers"), *_containers(spec, "initContainers")):
        resources = container.get("resources")
        if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
            stated = resources.get("requests")
            resources["requests"] = {**resources["limits"], **(stated if isinstance(stated, dict) else {})}
    name = spec.get("priorityClassName")
    if name and spec.get("priority") is None:
        if not isinstance(name, str) or name not in priorities:
            hint = nearest(str(name), priorities)
            raise ConfigError(f"there is no PriorityClass {name!r}{hint}", path="spec.priorityClassName")
        spec["priority"] = priorities[name]


def _containers(spec: Json, name: str) -> list[Json]:
    listed = spec.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
