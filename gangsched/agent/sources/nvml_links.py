"""Paths between GPUs in the notation of `nvidia-smi topo -m`: NV18, PIX, PXB, PHB, NODE. Called by `nvml`.

Links belong to the board, so they are queried only when a GPU is new. A path through the whole system (SYS)
exists between any two devices and is not listed.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from typing import Any

Links = dict[str, dict[str, str]]


def pci_address(bus_id: str | bytes) -> str:
    """`00000000:3B:00.0` in the kernel's form: `0000:3b:00.0`."""
    text = bus_id.decode() if isinstance(bus_id, bytes) else bus_id
    domain, _, rest = text.strip("\0 ").lower().partition(":")
    return f"{int(domain, 16):04x}:{rest}"


def links_between(nvml: Any, handles: Mapping[str, Any], by_address: Mapping[str, str]) -> Links:
    """GPU -> other GPU -> kind of path. Counts NVLinks; those to a switch reach all GPUs that have some."""
    direct: Counter[tuple[str, str]] = Counter()
    switched: Counter[str] = Counter()
    for name, handle in handles.items():
        for peer in _peers(nvml, handle):
            if peer is None:
                switched[name] += 1
            elif peer in by_address:
                direct[name, by_address[peer]] += 1
    links: Links = {name: {} for name in handles}
    for one, other in combinations(handles, 2):
        n_links = max(direct[one, other], direct[other, one]) or min(switched[one], switched[other])
        kind = f"NV{n_links}" if n_links else _by_pci(nvml, handles[one], handles[other])
        if kind:
            links[one][other] = links[other][one] = kind
    return links


def _peers(nvml: Any, handle: Any) -> list[str | None]:
    """The other end of each active NVLink: a PCI address, or None for a switch."""
    peers: list[str | None] = []
    for link in range(nvml.NVML_NVLINK_MAX_LINKS):
        try:
            if nvml.nvmlDeviceGetNvLinkState(handle, link) != nvml.NVML_FEATURE_ENABLED:
                continue
            if _is_switch(nvml, handle, link):
                peers.append(None)
            else:
                peers.append(pci_address(nvml.nvmlDeviceGetNvLinkRemotePciInfo(handle, link).busId))
        except nvml.NVMLError:
            continue  # this GPU has no such link
    return peers


def _is_switch(nvml: Any, handle: Any, link: int) -> bool:
    try:
        kind = nvml.nvmlDeviceGetNvLinkRemoteDeviceType(handle, link)
    except nvml.NVMLError:
        return False  # unsupported by an older driver: treat it as no known GPU
    return bool(kind == nvml.NVML_NVLINK_DEVICE_TYPE_SWITCH)


def _by_pci(nvml: Any, one: Any, other: Any) -> str:
    try:
        level = nvml.nvmlDeviceGetTopologyCommonAncestor(one, other)
    except nvml.NVMLError:
        return ""
    kinds = {
        nvml.NVML_TOPOLOGY_INTERNAL: "PIX",
        nvml.NVML_TOPOLOGY_SINGLE: "PIX",
        nvml.NVML_TOPOLOGY_MULTIPLE: "PXB",
        nvml.NVML_TOPOLOGY_HOSTBRIDGE: "PHB",
        nvml.NVML_TOPOLOGY_NODE: "NODE",
    }
    return kinds.get(level, "")
