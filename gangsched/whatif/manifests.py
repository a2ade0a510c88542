"""Reads manifests, YAML files as people write them, into the events that a core gets for such objects.

Adds what the API server would add, as far as scheduling reads it: a namespace, limits as requests, a
PriorityClass's number. Not the changes by webhooks and policies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import NamedTuple

import msgspec

from gangsched.core.scheduler import Scheduler
from gangsched.errors import ConfigError, ParseError
from gangsched.kube.watch.decode import Kind, all_kinds, followed
from gangsched.model.events import Event, ObjectPut, ObjectRefused, OwnerPut
from gangsched.model.objects import Pod
from gangsched.model.owners import OWNER_KINDS, replicas
from gangsched.model.owners.owner import DEFAULT_SCHEDULER
from gangsched.model.pod_group import POD, group_key
from gangsched.model.resource_claims.objects import CLAIMS
from gangsched.reading.strict import nearest
from gangsched.whatif import accepted
from gangsched.whatif.admission import Admission, Refused, limits_in
from gangsched.whatif.claims import TEMPLATE, template_of, with_claims
from gangsched.whatif.cluster import Classes, Cluster, PriorityClass, UnknownClasses, read_class
from gangsched.whatif.files import NO_POD, Document
from gangsched.whatif.kinds import Key, LeftOut, check_version, is_cluster_wide, key_of
from gangsched.whatif.makers import kubeflow, trainer
from gangsched.whatif.makers.controllers import MAKERS
from gangsched.whatif.makers.templates import MAX_PODS, Json
from gangsched.whatif.makers.unfolding import unfolders

_MAX_NAMESPACES = 20
_MAX_TEMPLATES = 100
_CLASS = ("scheduling.k8s.io", "PriorityClass")
_BY_POLICY = (
    "with the PodGroup that the operator makes by spec.runPolicy.schedulingPolicy, if it schedules gangs"
)
_NO_TEMPLATE = "named by pods, and not found: without it their claims are not made; give it too"
_LONE = (
    "each of their pods starts by itself, as no group is named: the operator's gang scheduling with"
    " spec.runPolicy.schedulingPolicy, or annotations in the templates (docs/gangs.md), make them one gang"
)


class Manifests(NamedTuple):
    """others: events of groups and controllers, which the core gets before the pods. notes: what of the files
    is left out, and what is assumed, for people. refused: pods that a namespace's limits do not admit.
    warnings: probable mistakes, with their places.
    """

    pods: Sequence[Pod]
    others: Sequence[Event]
    notes: Sequence[str] = ()
    refused: Sequence[Refused] = ()
    warnings: Sequence[str] = ()


def kinds_of(scheduler: Scheduler) -> tuple[Kind, ...]:
    """Returns all kinds that the core can process, with every controller from which it may infer gangs."""
    plain = all_kinds(scheduler.watches)
    owners = (followed(one.followed_as) for one in OWNER_KINDS.values())
    return (*plain, *(one for one in owners if one.name not in {kind.name for kind in plain}))


def read_manifests(
    documents: Sequence[Document],
    kinds: Sequence[Kind],
    cluster: Cluster,
    *,
    namespace: str = "default",
) -> Manifests:
    """kinds: those that the core watches; namespace: for objects without one. Raises: ConfigError, with its
    place.
    """
    reading = _Reading(documents, kinds, cluster, namespace)
    warnings: list[str] = []
    for _, place, document in documents:
        with _at(place):
            reading.take(document, namespace)
            warnings += (f"{place}: {problem}" for problem in accepted.check(document))
    reading.make_claims(documents, namespace)
    notes = reading.left_out.lines()
    if not reading.pods and not reading.refused:
        sources = ", ".join(dict.fromkeys(one.source for one in documents))
        raise ConfigError("; ".join((NO_POD, *notes)), source=sources)
    return Manifests(reading.pods, reading.others, notes, reading.refused, warnings)


class _Reading:
    """What has been read so far. Raises: ConfigError, without the document's place."""

    def __init__(
        self, documents: Sequence[Document], kinds: Sequence[Kind], cluster: Cluster, namespace: str
    ) -> None:
        self.pods: list[Pod] = []
        self.others: list[Event] = []
        self._followed = {(kind.group, kind.kind): kind for kind in kinds if not kind.has_no_type}
        self.refused: list[Refused] = []
        added = limits_in([(one.place, one.body) for one in documents], namespace)
        self._admission = Admission(cluster.limits, list(added))
        self._classes = _with_classes(cluster.classes, documents)
        runtimes = {
            (kind, "" if kind == trainer.IN_CLUSTER else where, name): body
            for kind, where, name, body in _runtimes(documents, namespace)
        }
        self._unfolders = unfolders({**cluster.runtimes, **runtimes})
        groups = (key for key in self._followed if key[1] == "PodGroup")
        self.left_out = LeftOut((*MAKERS, *self._unfolders, *groups))
        self._templates = cluster.claim_templates
        self._n_taken = 0

    def take(self, document: Json, namespace: str) -> None:
        """Reads one object, and what it makes."""
        n_before = len(self.pods)
        _complete(document, self._n_taken, namespace)
        self._n_taken += 1
        key = key_of(document["apiVersion"], document["kind"])
        check_version(key, document["apiVersion"])
        meta = document["metadata"]
        followed, unfold = self._followed.get(key), self._unfolders.get(key)
        if followed is not None and key[1] != "Pod" and (unfold is None or _is_read(followed, document)):
            self.others.append(_event(followed, document))
        if unfold is not None:
            for one in unfold(document):
                self.take(one, meta["namespace"])
        elif key in MAKERS:
            self._make(document, key)
        elif followed is None and key != _CLASS:
            self.left_out.add(key, meta["name"])
        self._note(document, key, self.pods[n_before:])

    def make_claims(self, documents: Sequence[Document], namespace: str) -> None:
        """Makes the claims of all pods, by the files' templates, and the cluster's. Raises: ConfigError."""
        templates = dict(self._templates)
        for _, place, body in documents:
            if key_of(str(body.get("apiVersion")), str(body.get("kind"))) == TEMPLATE:
                meta = body["metadata"]
                with _at(place):
                    templates[str(meta.get("namespace") or namespace), str(meta["name"])] = template_of(body)
        missing: dict[str, None] = {}
        for at, pod in enumerate(self.pods):
            if pod.spec.resource_claims:
                made = with_claims(pod, templates)
                self.pods[at] = made.pod
                self.others += [ObjectPut(CLAIMS, claim) for claim in made.claims]
                missing |= dict.fromkeys(made.missing)
        for name in missing:
            self.left_out.note(_NO_TEMPLATE, TEMPLATE[1], name)

    def _make(self, document: Json, key: Key) -> None:
        """Adds the pods that an object makes, as the API server would show them."""
        if key[0] == "apps" and key[1] in replicas.KINDS:
            self.others.append(_replicas(document))
        kind, namespace = self._followed["", "Pod"], document["metadata"]["namespace"]
        created = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        for pod in MAKERS[key](document):
            number = len(self.pods) + len(self.refused)
            if number >= MAX_PODS:
                raise ConfigError(f"makes more than {MAX_PODS} pods")
            meta, spec = pod["metadata"], pod.get("spec")
            if not isinstance(spec, dict):
                raise ConfigError("is missing, or is not an object", path="spec")
            meta |= {
                "namespace": namespace,
                "uid": f"whatif-pod-{number}",
                "resourceVersion": "1",
                "creationTimestamp": created,
            }
            _default(spec, self._classes)
            self._admission.set_defaults(namespace, spec)
            try:
                read = kind.decode_object(msgspec.json.encode({**pod, "status": {"phase": "Pending"}}))
                why = self._admission.refusal(namespace, spec)
            except (msgspec.MsgspecError, ParseError, TypeError, ValueError, RecursionError) as error:
                raise ConfigError(f"pod {str(meta.get('name'))[:80]}: {str(error)[:200]}") from None
            if why:
                of = f"{namespace}/{document['metadata']['name']}"
                self.refused.append(Refused(read.metadata.name, of, read.spec.scheduler_name, why))
            else:
                self.pods.append(read)

    def _note(self, document: Json, key: Key, pods: Sequence[Pod]) -> None:
        """Notes what is assumed about an object that makes pods."""
        spec, (_, kind), name = document.get("spec"), key, document["metadata"]["name"]
        if not isinstance(spec, dict) or (key not in MAKERS and key not in self._unfolders):
            return
        policy = spec.get("runPolicy")
        if spec.get("suspend") is True or (isinstance(policy, dict) and policy.get("suspend") is True):
            self.left_out.note("suspended, and looked at as if it were not", kind, name)
        if kind in ("CronJob", "RayCronJob"):
            self.left_out.note("one run of it is looked at", kind, name)
        if key[0] == kubeflow.GROUP:
            if isinstance(policy, dict) and policy.get("schedulingPolicy"):
                self.left_out.note(_BY_POLICY, kind, name)
            elif len(pods) > 1 and all(_is_lone(pod) for pod in pods):
                self.left_out.note(_LONE, kind, name)


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
    if is_cluster_wide(key_of(document["apiVersion"], document["kind"])):
        meta.pop("namespace", None)
    elif not meta.get("namespace"):
        meta["namespace"] = namespace
    if not isinstance(meta.get("namespace", ""), str):
        raise ConfigError("is not a text", path="metadata.namespace")
    meta |= {"uid": f"whatif-{number}-{meta['name']}", "resourceVersion": "1"}


def _is_lone(pod: Pod) -> bool:
    try:
        return group_key(pod).dialect == POD
    except ParseError:
        return False  # it names a group, and the answer says what is wrong with that


def runtimes_named(documents: Sequence[Document], namespace: str) -> Iterator[tuple[str, str, str]]:
    """Yields the keys of the runtimes that TrainJobs name; mistakes in these are found later."""
    for _, _, body in documents:
        if body.get("kind") == "TrainJob" and isinstance(meta := body.get("metadata"), dict):
            with suppress(ConfigError):
                where = str(meta.get("namespace") or namespace)
                yield trainer.runtime_of({**body, "metadata": {"namespace": where}})


def claim_templates_named(documents: Sequence[Document], namespace: str) -> list[tuple[str, str]]:
    """Returns the namespaces and names of ResourceClaimTemplates that pods of the files name and the files do
    not have, as many as may be asked about."""
    named: dict[tuple[str, str], None] = {}
    given: set[tuple[str, str]] = set()
    for _, _, body in documents:
        meta = body.get("metadata")
        meta = meta if isinstance(meta, dict) else {}
        where = str(meta.get("namespace") or namespace)
        if body.get("kind") == TEMPLATE[1]:
            given.add((where, str(meta.get("name"))))
        named |= dict.fromkeys((where, name) for name in _texts(body, "resourceClaimTemplateName"))
    return [one for one in named if one not in given][:_MAX_TEMPLATES]


def _texts(document: object, name: str) -> Iterator[str]:
    """Yields the texts of all fields of that name, wherever the maker of the pods has them."""
    left = [document]
    while left:
        one = left.pop()
        if isinstance(one, dict):
            if isinstance(text := one.get(name), str) and text:
                yield text
            left += one.values()
        elif isinstance(one, list):
            left += one


def namespaces_of(documents: Sequence[Document], namespace: str) -> list[str]:
    """Returns the namespaces of the files' objects, as many as may be asked about."""
    metas = [body.get("metadata") for _, _, body in documents]
    named = [meta.get("namespace") or namespace for meta in metas if isinstance(meta, dict)]
    return list(dict.fromkeys(one for one in named if isinstance(one, str)))[:_MAX_NAMESPACES]


def _runtimes(documents: Sequence[Document], namespace: str) -> Iterator[tuple[str, str, str, Json]]:
    for _, _, body in documents:
        meta = body.get("metadata")
        if body.get("kind") in (trainer.IN_CLUSTER, trainer.IN_NAMESPACE) and isinstance(meta, dict):
            yield body["kind"], str(meta.get("namespace") or namespace), str(meta.get("name")), body


def _with_classes(classes: Classes, documents: Sequence[Document]) -> Classes:
    """Adds the PriorityClasses of the files. Raises: ConfigError."""
    added: dict[str, PriorityClass] = {}
    for _, place, body in documents:
        if body.get("kind") == _CLASS[1] and str(body.get("apiVersion")).startswith(f"{_CLASS[0]}/"):
            try:
                one = read_class(body)
            except msgspec.MsgspecError as error:
                raise ConfigError(f"is no PriorityClass: {str(error)[:200]}", source=place) from None
            added[one.metadata.name] = one
    if not added:
        return classes
    return UnknownClasses(added) if isinstance(classes, UnknownClasses) else {**classes, **added}


@contextmanager
def _at(place: str) -> Iterator[None]:
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.message, source=place, path=error.path) from None


def _is_read(kind: Kind, document: Json) -> bool:
    return not kind.versions or document["apiVersion"].rpartition("/")[2] in kind.versions


def _event(kind: Kind, document: Json) -> Event:
    version = document["apiVersion"].rpartition("/")[2]
    if not _is_read(kind, document):
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


def _replicas(document: Json) -> Event:
    """Returns the event that tells how many pods the object makes. Raises: ConfigError."""
    try:
        item = msgspec.convert(document, replicas.Replicas)
    except msgspec.ValidationError as error:
        raise ConfigError(f"is no {document['kind']}: {error}") from None
    return OwnerPut(replicas.read(item))


def _why(refused: Event) -> str:
    return refused.message if isinstance(refused, ObjectRefused) else "it cannot be read"


def _default(spec: Json, classes: Classes) -> None:
    """Sets defaults like kube-apiserver: the scheduler; limits become missing requests; a class, or the
    default one, gives its number."""
    for container in (*_containers(spec, "containers"), *_containers(spec, "initContainers")):
        resources = container.get("resources")
        if isinstance(resources, dict) and isinstance(resources.get("limits"), dict):
            stated = resources.get("requests")
            resources["requests"] = {**resources["limits"], **(stated if isinstance(stated, dict) else {})}
    spec["schedulerName"] = spec.get("schedulerName") or DEFAULT_SCHEDULER
    name = spec.get("priorityClassName")
    if name is None or name == "":
        # Of several default classes the API server takes the least.
        defaults = [one for one in classes.values() if one.global_default]
        given = min(defaults, key=lambda one: one.value, default=None)
    elif not isinstance(name, str) or name not in classes:
        raise ConfigError(
            f"there is no PriorityClass {str(name)[:80]!r}{nearest(str(name), classes)}",
            path="spec.priorityClassName",
        )
    else:
        given = classes[name]
    if given is not None and spec.get("priority") is None:
        spec["priority"] = given.value
        spec["priorityClassName"] = given.metadata.name
        if given.preemption_policy and not spec.get("preemptionPolicy"):
            spec["preemptionPolicy"] = given.preemption_policy


def _containers(spec: Json, name: str) -> list[Json]:
    listed = spec.get(name)
    return [one for one in listed if isinstance(one, dict)] if isinstance(listed, list) else []
