"""The section `devices`."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gangsched.config.documents import Document


class Devices(Document, frozen=True):
    """Read as config.devices.DeviceSettings."""

    hand_off: Annotated[
        dict[str, Literal["env", "device-plugin", "count"]],
        Meta(
            description="How a resource's IDs reach containers, by resource name; a resource that is not"
            " named uses `env`. `device-plugin`: through kubelet; `count`: no IDs are given."
        ),
    ] = msgspec.field(default_factory=dict)
    require: Annotated[
        tuple[str, ...],
        Meta(
            description="Resources whose device IDs must be known: pods that request them go only to nodes"
            " that list their devices, in every profile. One profile alone: the argument `require` of"
            " `Devices`. A pod or PodGroup: `gangsched.io/require-device-ids`."
        ),
    ] = ()
    allocation_in: Annotated[
        Literal["annotations", "labels"],
        Meta(
            description="Whether a pod's IDs are written as annotations or as labels. Labels need Kubernetes"
            " 1.35."
        ),
    ] = "annotations"
    repair_annotations: Annotated[
        bool,
        Meta(
            description="Rewrite device annotations that are not true. Needs the verb patch on pods:"
            " `deploy/device-plugin-hand-off/`."
        ),
    ] = False
    on_mismatch: Annotated[
        Literal["none", "evict"],
        Meta(description="`evict` removes a pod whose devices are of no use to it."),
    ] = "none"
    on_device_failure: Annotated[
        Literal["none", "evictMember", "evictGang"],
        Meta(
            description="What becomes of pods whose device stays unhealthy: `none`, `evictMember` or"
            " `evictGang`."
        ),
    ] = "none"
    failure_grace_seconds: Annotated[
        float,
        Meta(description="How long a device must be unhealthy before that."),
    ] = 30.0
    failure_again_seconds: Annotated[
        float,
        Meta(
            description="How long after such an eviction a group is not evicted for a device that fails"
            " later."
        ),
    ] = 600.0
    device_order: Annotated[
        Literal["better", "upstream"],
        Meta(
            description="Which of the devices that would do a resource claim gets: the"
            " [better ones](resource-claims.md#which-devices-a-claim-gets), or the first ones, as in"
            " kube-scheduler."
        ),
    ] = "better"
