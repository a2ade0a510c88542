"""TenantNames: whether what is written into a namespace names objects of another one.

What is written into a namespace (conditions and events, status of PodGroups, annotations of Bindings,
messages of deletions) is read by its tenants, so it names no pod, gang, claim or budget of another namespace.
Called by lab.sim.judges.step_judges.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import msgspec

from gangsched.lab.sim.reading.documents import gang_of
from gangsched.lab.sim.reading.received import Received
from gangsched.model import effects as ef
from gangsched.model.objects import Pod

# A name as messages write it, and one alone: of a pod or gang of these workloads, never a plain word.
_WORD = re.compile(r"[a-z0-9][-a-z0-9.]*(?:/[a-z0-9][-a-z0-9.]*)?")


class TenantNames:
    """tenants-apart: what is written into a namespace names no object of another one.

    A name that the namespace's own objects carry or state (another gang's, in a list) is its users' own word.
    """

    def __init__(self) -> None:
        self._of: dict[str, dict[str, None]] = {}
        """Name, alone and with its namespace -> the namespaces that have such an object, ever."""
        self._namespaces: dict[str, None] = {}
        self._n_changes = -1

    def check(self, effects: Iterable[ef.Effect], received: Received) -> Iterator[str]:
        """Before the effects are sent."""
        if received.n_inputs != self._n_changes:
            self._n_changes = received.n_inputs
            self._note_names(received)
        if len(self._namespaces) < 2:
            return
        for namespace, text in _written(effects):
            for name in dict.fromkeys(_WORD.findall(text)):
                name = name.rstrip(".")
                of = self._of.get(name)
                if of is not None and namespace not in of and not _is_own_word(name, namespace, received):
                    yield (
                        f"tenants-apart: {namespace or 'an object of no namespace'} can read "
                        f"{name}, in: {text}"
                    )

    def _note_names(self, received: Received) -> None:
        for pod in received.pods.values():
            self._note_name(pod.metadata.namespace, pod.metadata.name)
            if (gang := gang_of(pod)) is not None:
                self._note_name(gang.namespace, gang.name)
        for kind in received.objects.values():
            for namespace, name in kind:
                if namespace:
                    self._note_name(namespace, name)

    def _note_name(self, namespace: str, name: str) -> None:
        self._namespaces[namespace] = None
        for one in (name, f"{namespace}/{name}"):
            if any(letter.isdigit() for letter in one) or "/" in one:
                self._of.setdefault(one, {})[namespace] = None


def _written(effects: Iterable[ef.Effect]) -> Iterator[tuple[str, str]]:
    """(namespace, text) of everything that a namespace's readers see."""
    for effect in effects:
        match effect:
            case ef.RecordEvent(namespace=namespace, message=text):
                yield namespace, text
            case ef.WritePodCondition(namespace=namespace, message=text):
                yield namespace, text
            case ef.WritePodGroupStatus(namespace=namespace, status=status):
                yield namespace, msgspec.json.encode(status).decode()
            case ef.DeletePod(namespace=namespace, message=text):
                yield namespace, text
            case ef.BindPod(namespace=namespace, annotations=annotations, labels=labels):
                yield namespace, " ".join((*annotations.values(), *labels.values()))


def _is_own_word(name: str, namespace: str, received: Received) -> bool:
    return any(
        pod.metadata.namespace == namespace and any(name in text for text in _texts(pod))
        for pod in received.pods.values()
    )


def _texts(pod: Pod) -> Iterator[str]:
    yield from (pod.metadata.annotations or {}).values()
    yield from (pod.metadata.labels or {}).values()
