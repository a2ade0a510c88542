"""The configuration sections for kubelet and for the agent's device plugins, and their validation.

Not here: the document with these sections (`settings`), their use (`device_plugin`, `outfit`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gangsched.errors import ConfigError
from gangsched.model.resources import is_extended
from gangsched.model.text.names import is_qualified_name

HandOff = Literal["device-plugin", "env", "count"]

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# Container Device Interface, SPEC.md: vendor/class=name.
_CDI = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w-]*=[\w.:{}-]+")
# A socket's path has at most 107 bytes, and kubelet appends our name to the directory.
_MAX_DIRECTORY = 40


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Shared options."""


class DeviceFileDocument(_Document, frozen=True):
    """host: `/dev/…`; permissions: read, write and mknod."""

    host: Annotated[str, Meta(description="What a container gets once: a device file on the host.")]
    container: Annotated[str, Meta(description="Its path in the container; empty: the same.")] = ""
    permissions: Annotated[str, Meta(description="Of `r`, `w` and `m`.")] = "rw"


class MountDocument(_Document, frozen=True):
    """A directory or a file of the host that a container sees."""

    host: Annotated[str, Meta(description="A path on the host.")]
    container: Annotated[str, Meta(description="The path in the container; empty: the same.")] = ""
    read_only: Annotated[bool, Meta(description="Mount it read-only.")] = True


class OutfitDocument(_Document, frozen=True):
    """What a container gets; `{id}` stands for the device's ID."""

    device_files: tuple[DeviceFileDocument, ...] = ()
    mounts: tuple[MountDocument, ...] = ()
    cdi: Annotated[tuple[str, ...], Meta(description="CDI device names.")] = ()


class PluginDocument(_Document, frozen=True):
    """A resource that the agent offers to kubelet.

    tell_numa: kubelet's TopologyManager aligns by the NUMA nodes; it may then choose other devices than
    planned, which are rejected. all: what a container gets once.
    """

    resource: Annotated[str, Meta(description="A resource that the agent offers to kubelet. Required.")]
    hand_off: Annotated[
        HandOff,
        Meta(
            description="`device-plugin`, `env` or `count`: see [the three"
            " hand-offs](devices.md#three-hand-offs)."
        ),
    ] = "device-plugin"
    tell_numa: Annotated[bool, Meta(description="Tell kubelet the devices' NUMA nodes.")] = False
    env: Annotated[
        dict[str, str],
        Meta(description="Variables of the container; `{ids}` stands for its IDs."),
    ] = {}
    all: OutfitDocument = OutfitDocument()
    each: Annotated[
        OutfitDocument,
        Meta(
            description="What a container gets for each device; fields as in `all`, `{id}` stands for the ID."
        ),
    ] = OutfitDocument()
    by_device: Annotated[
        dict[str, OutfitDocument],
        Meta(
            description="The same by device ID, instead of `each`, for devices whose files have other names."
        ),
    ] = {}


class KubeletDocument(_Document, frozen=True):
    """kubelet's sockets, and what to list of other plugins."""

    device_plugins: Annotated[
        str,
        Meta(description="Where kubelet's device plugin sockets are."),
    ] = "/var/lib/kubelet/device-plugins"
    pod_resources: Annotated[
        str,
        Meta(description="kubelet's PodResources socket."),
    ] = "/var/lib/kubelet/pod-resources/kubelet.sock"
    pods_api: Annotated[
        str,
        Meta(
            description="kubelet's Pods API socket (Kubernetes 1.37); empty or absent: the API server is"
            " asked."
        ),
    ] = "/var/lib/kubelet/pods-api/pods-api.sock"
    resources: Annotated[
        tuple[str, ...],
        Meta(description="Resources of other device plugins, listed by what they told kubelet."),
    ] = ()

    @property
    def registration_socket(self) -> str:
        return f"{self.device_plugins}/kubelet.sock"


def check_kubelet(kubelet: KubeletDocument, plugins: Sequence[PluginDocument]) -> None:
    """Raises: ConfigError, naming the field."""
    _absolute(kubelet.device_plugins, "kubelet.devicePlugins")
    _absolute(kubelet.pod_resources, "kubelet.podResources")
    if kubelet.pods_api:
        _absolute(kubelet.pods_api, "kubelet.podsApi")
    if plugins and len(kubelet.device_plugins) > _MAX_DIRECTORY:
        raise ConfigError(
            f"has {len(kubelet.device_plugins)} characters, at most {_MAX_DIRECTORY}: the path of a socket"
            " there would be longer than Linux takes",
            path="kubelet.devicePlugins",
        )
    for i, resource in enumerate(kubelet.resources):
        where = f"kubelet.resources[{i}]"
        _resource(resource, kubelet.resources, where)
        if any(plugin.resource == resource for plugin in plugins):
            raise ConfigError(
                f"{resource!r} is offered by the agent itself (plugins), which tells kubelet of it",
                path=where,
            )


def check_plugins(plugins: Sequence[PluginDocument]) -> None:
    """Raises: ConfigError, naming the field."""
    names = [plugin.resource for plugin in plugins]
    for i, plugin in enumerate(plugins):
        where = f"plugins[{i}]"
        _resource(plugin.resource, names, f"{where}.resource")
        for name in plugin.env:
            if not _VARIABLE.fullmatch(name):
                raise ConfigError(f"{name!r} is not the name of a variable", path=f"{where}.env")
        parts = {"all": plugin.all, "each": plugin.each}
        parts |= {f"byDevice.{device}": part for device, part in plugin.by_device.items()}
        for name, part in parts.items():
            _check_outfit(part, f"{where}.{name}", has_id=name != "all")
        if plugin.hand_off == "env" and (
            plugin.env or any(part != OutfitDocument() for part in parts.values())
        ):
            raise ConfigError(
                "by environment the pod's annotation says which devices it has, and kubelet's choice means"
                " nothing: leave out env, all, each and byDevice, or choose another handOff",
                path=f"{where}.handOff",
            )


def _check_outfit(part: OutfitDocument, where: str, *, has_id: bool) -> None:
    for i, file in enumerate(part.device_files):
        place = f"{where}.deviceFiles[{i}]"
        _absolute(file.host, f"{place}.host", within="/dev/")
        if file.container:
            _absolute(file.container, f"{place}.container")
        if not file.permissions or set(file.permissions) - set("rwm"):
            raise ConfigError(f"{file.permissions!r} is not of r, w and m", path=f"{place}.permissions")
    for i, mount in enumerate(part.mounts):
        _absolute(mount.host, f"{where}.mounts[{i}].host")
        if mount.container:
            _absolute(mount.container, f"{where}.mounts[{i}].container")
    for i, name in enumerate(part.cdi):
        if not _CDI.fullmatch(name):
            raise ConfigError(
                f"{name!r} is not a CDI name such as nvidia.com/gpu={{id}}", path=f"{where}.cdi[{i}]"
            )
    if not has_id and "{id}" in str(part):
        raise ConfigError(
            "what a container gets once is of no one device: {id} stands for nothing", path=where
        )


def check_resource(name: str, where: str) -> None:
    """Raises: ConfigError. kubelet rejects plugins with any other name, however often they register."""
    if not (is_extended(name) and is_qualified_name(name)):
        raise ConfigError(f"{name!r} is not an extended resource such as nvidia.com/gpu", path=where)


def _resource(name: str, names: Sequence[str], where: str) -> None:
    check_resource(name, where)
    if names.count(name) > 1:
        raise ConfigError(f"{name!r} is given twice", path=where)


def _absolute(path: str, where: str, *, within: str = "/") -> None:
    if not path.startswith(within) or "/../" in f"{path}/":
        raise ConfigError(f"{path!r} is not a path from {within} on", path=where)
