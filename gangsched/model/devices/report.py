"""The agent's report of which devices kubelet gave to which pods: annotation `gangsched.io/device-report`.

The agent writes it on the Node from kubelet's PodResources API; the scheduler's audit and `gangsched devices`
read it. It covers the resources that the agent's device plugin hands out by the plan. Of other resources
kubelet only counts what pods with a plan have, and the IDs that it picks do not determine what their
containers see; for pods without a plan they do (`others`). The report contains no times, so it is written
only when something changes.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from gangsched.errors import ParseError
from gangsched.model.devices.annotations import MAX_DEVICES, MAX_ID_LENGTH
from gangsched.model.text import bounded

DEVICE_REPORT_KEY = "gangsched.io/device-report"


class PodDevices(msgspec.Struct, frozen=True, gc=False):
    """The devices of one pod. containers: container name -> resource -> device IDs."""

    uid: str
    namespace: str
    name: str
    containers: dict[str, dict[str, tuple[str, ...]]]


class DeviceReport(msgspec.Struct, frozen=True, gc=False):
    """resources: the ones covered; a pod that is not in `pods` has none of them (yet).

    ended: pods that no longer hold devices and whose annotation differs from what they had. others: live pods
    that were bound without IDs of other resources which the node lists, with what kubelet chose for them.
    """

    resources: tuple[str, ...] = ()
    pods: tuple[PodDevices, ...] = ()
    ended: tuple[PodDevices, ...] = ()
    others: tuple[PodDevices, ...] = ()


_decode = bounded.decoder(DeviceReport)
_encode = msgspec.json.Encoder().encode


def parse_report(text: str) -> DeviceReport:
    """Reads the annotation. Raises: ParseError (malformed, or two pods have one device)."""
    try:
        report = _decode(text)
    except msgspec.MsgspecError as error:
        raise ParseError(f"is not a report of devices: {error}", field=DEVICE_REPORT_KEY) from None
    seen: dict[tuple[str, str], str] = {}
    for pod in (*report.pods, *report.others):
        for place in _checked(pod):
            other = seen.setdefault(place, pod.uid)
            if other != pod.uid:
                resource, device_id = place
                raise ParseError(
                    f"{device_id} of {resource} is reported for two pods, {other} and {pod.uid}",
                    field=DEVICE_REPORT_KEY,
                )
        if len(seen) > MAX_DEVICES:
            raise ParseError(f"lists more than {MAX_DEVICES} devices", field=DEVICE_REPORT_KEY)
    for pod in report.ended:
        _checked(pod)
    return report


def report_annotation(
    resources: Iterable[str],
    pods: Iterable[PodDevices],
    ended: Iterable[PodDevices] = (),
    others: Iterable[PodDevices] = (),
) -> str:
    """Returns the annotation's value; the order of the arguments does not affect it."""
    written: dict[str, object] = {"resources": sorted(set(resources)), "pods": _ordered(pods)}
    if late := _ordered(ended):
        written["ended"] = late
    if without := _ordered(others):
        written["others"] = without
    return _encode(written).decode()


def _ordered(pods: Iterable[PodDevices]) -> list[dict[str, object]]:
    return [
        {
            "uid": pod.uid,
            "namespace": pod.namespace,
            "name": pod.name,
            "containers": {
                container: {resource: sorted(ids) for resource, ids in sorted(sets.items())}
                for container, sets in sorted(pod.containers.items())
            },
        }
        for pod in sorted(pods, key=lambda pod: pod.uid)
    ]


def _checked(pod: PodDevices) -> list[tuple[str, str]]:
    if not pod.uid:
        raise ParseError(f"{pod.namespace}/{pod.name} has no uid", field=DEVICE_REPORT_KEY)
    places = list(_each(pod))
    for _, device_id in places:
        if not device_id or len(device_id) > MAX_ID_LENGTH:
            raise ParseError(f"{device_id[:80]!r} is not a device ID", field=DEVICE_REPORT_KEY)
    return places


def _each(pod: PodDevices) -> Iterable[tuple[str, str]]:
    for sets in pod.containers.values():
        for resource, ids in sets.items():
            for device_id in ids:
                yield resource, device_id
