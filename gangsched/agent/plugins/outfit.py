"""What a container gets with its devices: device files, mounts, variables, CDI names. Pure.

Taken only from the configuration of the resource (`agent.plugins.settings.PluginDocument`): the agent does
not read device files itself. Called by `device_plugin` for each Allocate.
"""

from __future__ import annotations

from collections.abc import Iterable

from gangsched.agent.kubelet_api import deviceplugin_pb2 as pb
from gangsched.agent.plugins.settings import OutfitDocument, PluginDocument


def outfit(plugin: PluginDocument, ids: Iterable[str]) -> pb.ContainerAllocateResponse:
    """The outfit of a container with these devices."""
    response = pb.ContainerAllocateResponse()
    if plugin.hand_off == "env":  # kubelet's choice is ignored in that mode
        return response
    ordered = sorted(ids)
    for name, value in plugin.env.items():
        response.envs[name] = value.replace("{ids}", ",".join(ordered))
    seen: set[tuple[str, str]] = set()
    _add(response, plugin.all, "", seen)
    for device_id in ordered:
        _add(response, plugin.by_device.get(device_id, plugin.each), device_id, seen)
    return response


def _add(
    response: pb.ContainerAllocateResponse,
    part: OutfitDocument,
    device_id: str,
    seen: set[tuple[str, str]],
) -> None:
    """Add a part; items shared by several devices (a control device, a library) are added once."""
    for file in part.device_files:
        host = file.host.replace("{id}", device_id)
        inside = (file.container or file.host).replace("{id}", device_id)
        if ("device", inside) not in seen:
            seen.add(("device", inside))
            response.devices.append(
                pb.DeviceSpec(container_path=inside, host_path=host, permissions=file.permissions)
            )
    for mount in part.mounts:
        host = mount.host.replace("{id}", device_id)
        inside = (mount.container or mount.host).replace("{id}", device_id)
        if ("mount", inside) not in seen:
            seen.add(("mount", inside))
            response.mounts.append(pb.Mount(container_path=inside, host_path=host, read_only=mount.read_only))
    for name in part.cdi:
        filled = name.replace("{id}", device_id)
        if ("cdi", filled) not in seen:
            seen.add(("cdi", filled))
            response.cdi_devices.append(pb.CDIDevice(name=filled))
