"""What the agent says on the Node of what kubelet gave to whom: pure. The form is model.device_report's.

A reading of PodResources right after kubelet's start lacks pods that kubelet has not heard of yet; such a one
is no reading (`is_whole`). Called by `handing`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from gangsched.agent.plan import Given, PlannedPod, is_served
from gangsched.model.device_report import PodDevices, report_annotation


def is_whole(given: Given, pods: Iterable[PlannedPod]) -> bool:
    """Does it know every pod that kubelet has admitted by the API server's word?"""
    return all(pod.key in given for pod in pods if pod.has_started and not pod.is_going)


def report(resources: Collection[str], given: Given, pods: Iterable[PlannedPod]) -> str:
    """The annotation's value: of `resources`, what the live `pods` have.

    One that kubelet is in the middle of admitting is not in it: the scheduler takes who is for admitted, and
    would plan the rest of its devices anew.
    """
    said = []
    for pod in pods:
        if not pod.has_started and not is_served(pod, given):
            continue
        containers = {
            container: held
            for container, sets in given.get(pod.key, {}).items()
            if (held := {of: tuple(sorted(ids)) for of, ids in sets.items() if of in resources and ids})
        }
        if containers:
            said.append(
                PodDevices(uid=pod.uid, namespace=pod.namespace, name=pod.name, containers=containers)
            )
    return report_annotation(resources, said)
