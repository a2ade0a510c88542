"""Words by which other systems' pods ask for a share of a device: recognised here, and refused.

Each system enforces a share by what its own scheduler writes on the pod for its device plugin, so a node that
offers such a resource by number does not make it come true: bound by count alone the container fails at its
admission, or starts without a device. Sources: kai-scheduler/KAI-Scheduler pkg/common/constants;
Project-HAMi/HAMi docs/config.md; Project-HAMi/volcano-vgpu-device-plugin (vgpu-*), volcano-sh/devices
(gpu-memory); koordinator-sh/koordinator apis/extension; AliyunContainerService/gpushare-scheduler-extender;
tkestack/gpu-manager (vcuda-*); elastic-ai/elastic-gpu. Called by core.types.templates.pod_template.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

KAI_KEYS = ("gpu-fraction", "gpu-memory", "gpu-fraction-num-devices", "gpu-fraction-container-name")
_KAI_KEYS = frozenset(KAI_KEYS)
_KAI = "KAI (and Run:ai)"

_BY_NAME: Mapping[str, str] = {
    **dict.fromkeys(
        (
            *(
                "nvidia.com/gpumem",
                "nvidia.com/gpumem-percentage",
                "nvidia.com/gpucores",
                "nvidia.com/priority",
            ),
            *("amd.com/gpumem", "cambricon.com/vmlu", "cambricon.com/mlu.smlu.vcore"),
            *("cambricon.com/mlu.smlu.vmemory", "hygon.com/dcumem", "hygon.com/dcucores"),
            *("iluvatar.ai/vcuda-core", "iluvatar.ai/vcuda-memory", "metax-tech.com/sgpu"),
            *("metax-tech.com/vcore", "metax-tech.com/vmemory", "mthreads.com/vgpu"),
            *("mthreads.com/sgpu-core", "mthreads.com/sgpu-memory", "enflame.com/vgcu-percentage"),
        ),
        "HAMi",
    ),
    **dict.fromkeys(
        ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage", "aliyun.com/gpu-compute"),
        "Aliyun's gpushare",
    ),
    **dict.fromkeys(("tencent.com/vcuda-core", "tencent.com/vcuda-memory"), "Tencent's gpu-manager"),
    **dict.fromkeys(
        ("tke.cloud.tencent.com/qgpu-core", "tke.cloud.tencent.com/qgpu-memory"), "Tencent's qGPU"
    ),
    **dict.fromkeys(("elasticgpu.io/gpu-core", "elasticgpu.io/gpu-memory"), "elastic-gpu"),
}
_BY_BEGINNING = (
    ("volcano.sh/vgpu-", "Volcano"),
    ("volcano.sh/gpu-", "Volcano"),
    ("koordinator.sh/gpu", "Koordinator"),
)


def share_keys(annotations: Mapping[str, str] | None) -> tuple[str, ...] | None:
    """The pod's annotations that ask KAI for a share; None: none, as nearly always."""
    if not annotations or _KAI_KEYS.isdisjoint(annotations):
        return None
    return tuple(key for key in KAI_KEYS if key in annotations)


def refused_share(annotations: Mapping[str, str] | None, requested: Iterable[str]) -> str:
    """Why a pod that asks another system for a share of a device is not placed, and what to write instead;
    "" for others. requested: the resources of which its containers request some."""
    if keys := share_keys(annotations):
        return f"metadata.annotations: {_told(keys[0], _KAI, 'schedulerName: kai-scheduler')}"
    for name in requested:
        system = _BY_NAME.get(name) or next((of for start, of in _BY_BEGINNING if name.startswith(start)), "")
        if system:
            return f"spec.containers.resources: {_told(name, system, 'its schedulerName')}"
    return ""


def _told(word: str, system: str, name: str) -> str:
    return (
        f"{word} asks {system} for a share of a device, which gangsched cannot give (yet): ask for whole"
        f" devices, such as nvidia.com/gpu: 1 without {word}; for what the device plugin itself divides, such"
        f" as nvidia.com/gpu.shared or nvidia.com/mig-1g.10gb; or leave the pod to {system} ({name})"
    )
