"""The agent's configuration: a strict YAML document in one file or several, flags, and the node's name.

Flags override the document; the environment supplies the node's name.

Lives here: the document as written, the settings it resolves to, and the place of every mistake. Not here:
reading the file and the flags themselves (`command`). Other tasks of the agent have sections beside `nvml`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from gangsched.agent.plugins.settings import (
    KubeletDocument,
    PluginDocument,
    check_kubelet,
    check_plugins,
    check_resource,
)
from gangsched.agent.probes.probe_settings import (
    BandwidthDocument,
    LoadDocument,
    ProbeSettings,
    check_probes,
)
from gangsched.agent.sources.nvml import APPLICATION_XIDS, Mode
from gangsched.agent.sources.registers import HAMI, VOLCANO, Register
from gangsched.errors import ConfigError
from gangsched.reading.strict import decode, nearest, read_documents

API_VERSION = "gangsched.io/v1"
KIND = "AgentConfiguration"
NODE_NAME_VARIABLE = "NODE_NAME"
# These fields identify the kind of document, so each file has them.
_MARKS = ("apiVersion", "kind")

_REGISTERS = {"hami": HAMI, "volcano": VOLCANO}
# Time in which a change by another program's agent on the Node is noticed, give or take a fifth.
REGISTER_S = 3.0
_NODE_NAME = re.compile(r"[a-z0-9](?:[-a-z0-9.]{0,251}[a-z0-9])?")
_MAX_HEARTBEAT_S = 3600.0


class _Document(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """Shared options."""


class NvmlDocument(_Document, frozen=True):
    """NVIDIA GPUs, listed by their driver."""

    mode: Annotated[
        Mode,
        Meta(
            description="`auto`: NVIDIA GPUs where there is a driver. `on`: report if there is none. `off`."
        ),
    ] = "auto"
    resource: Annotated[str, Meta(description="The resource that a GPU is.")] = "nvidia.com/gpu"
    ignore_xids: Annotated[
        tuple[int, ...],
        Meta(description="XIDs that an application caused and that leave the GPU healthy."),
    ] = tuple(sorted(APPLICATION_XIDS))


class AgentDocument(_Document, frozen=True):
    """AgentConfiguration. inventory_in: model.devices.labels has both forms."""

    api_version: str = API_VERSION
    kind: str = KIND
    node_name: Annotated[
        str,
        Meta(description="Which node this is; empty: the environment variable `NODE_NAME`."),
    ] = ""
    heartbeat_seconds: Annotated[
        float,
        Meta(description="The Node is compared with what it should say at least this often."),
    ] = 60.0
    devices: Annotated[
        tuple[str, ...],
        Meta(description="JSON files of devices, or directories of `*.json`."),
    ] = ()
    nvml: NvmlDocument = NvmlDocument()
    registers: Annotated[
        tuple[Literal["hami", "volcano"], ...],
        Meta(description="Read devices from what `hami` or `volcano` node agents wrote on the Node."),
    ] = ()
    inventory_in: Annotated[
        Literal["annotation", "labels"],
        Meta(description="Whether the list is an annotation of the Node or labels."),
    ] = "annotation"
    bandwidth: BandwidthDocument = BandwidthDocument()
    load: LoadDocument = LoadDocument()
    kubelet: KubeletDocument = KubeletDocument()
    plugins: tuple[PluginDocument, ...] = ()


class AgentSettings(msgspec.Struct, frozen=True):
    """The agent's resolved settings. heartbeat_s: the Node is read at least this often.

    in_labels: write the list as labels.
    """

    node_name: str
    heartbeat_s: float
    devices: tuple[str, ...]
    nvml: NvmlDocument
    registers: tuple[Register, ...]
    probes: ProbeSettings = ProbeSettings()
    kubelet: KubeletDocument = KubeletDocument()
    plugins: tuple[PluginDocument, ...] = ()
    in_labels: bool = False


class AgentFlags(msgspec.Struct, frozen=True):
    """The given flags; each overrides the file, except that `registers` are added to it."""

    node_name: str = ""
    heartbeat_s: float | None = None
    devices: tuple[str, ...] = ()
    nvml: Mode | None = None
    registers: tuple[Literal["hami", "volcano"], ...] = ()
    bandwidth: bool = False
    load: bool = False
    nics: tuple[str, ...] = ()


def parse_settings(text: str, *, source: str, flags: AgentFlags, environ: Mapping[str, str]) -> AgentSettings:
    """Reads a configuration file's text. Raises: ConfigError, carrying `source`."""
    return parse_parts([(source, text)], flags=flags, environ=environ)


def parse_parts(
    parts: Sequence[tuple[str, str]], *, flags: AgentFlags, environ: Mapping[str, str]
) -> AgentSettings:
    """Reads files that form one configuration, (name, text) each: a section may be in only one of them.

    Raises: ConfigError, carrying the file's name.
    """
    whole: dict[str, Any] = {}
    home: dict[str, str] = {}
    for source, text in parts:
        try:
            written = _written(text)
            decode(AgentDocument, written, "")
        except ConfigError as error:
            raise ConfigError(error.message, path=error.path, source=source) from None
        for section, value in written.items():
            if section in _MARKS:
                continue
            if section in home:
                raise ConfigError(
                    f"is in {home[section]} too; a section stands in one file", path=section, source=source
                )
            home[section], whole[section] = source, value
    try:
        return _resolved(decode(AgentDocument, whole, ""), flags, environ)
    except ConfigError as error:
        section = re.split(r"[.\[]", error.path, maxsplit=1)[0]
        if section not in home:
            raise  # a mistake in a flag or the environment
        raise ConfigError(error.message, path=error.path, source=home[section]) from None


def default_settings(flags: AgentFlags, environ: Mapping[str, str]) -> AgentSettings:
    """Settings without a file. Raises: ConfigError."""
    return _resolved(AgentDocument(), flags, environ)


def _written(text: str) -> dict[str, Any]:
    documents = read_documents(text)
    if len(documents) != 1:
        raise ConfigError(f"has {len(documents)} documents, expected one of kind {KIND}")
    document: dict[str, Any] = documents[0]
    kind, version = document.get("kind"), document.get("apiVersion")
    if kind != KIND:
        hint = nearest(kind, (KIND,)) if isinstance(kind, str) else ""
        raise ConfigError(f"{kind!r} should be {KIND!r}{hint}", path="kind")
    if version != API_VERSION:
        raise ConfigError(f"{version!r} should be {API_VERSION!r}", path="apiVersion")
    nvml = document.get("nvml")
    if isinstance(nvml, dict) and isinstance(nvml.get("mode"), bool):
        # YAML reads a bare on and off as true and false.
        document = {**document, "nvml": {**nvml, "mode": "on" if nvml["mode"] else "off"}}
    return document


def _resolved(document: AgentDocument, flags: AgentFlags, environ: Mapping[str, str]) -> AgentSettings:
    nvml = document.nvml
    check_resource(nvml.resource, "nvml.resource")
    check_plugins(document.plugins)
    check_kubelet(document.kubelet, document.plugins)
    if flags.nvml is not None:
        nvml = msgspec.structs.replace(nvml, mode=flags.nvml)
    names = dict.fromkeys((*document.registers, *flags.registers))
    registers = tuple(_REGISTERS[name] for name in names)
    heartbeat_s = _heartbeat_s(document, flags)
    return AgentSettings(
        node_name=_node_name(document, flags, environ),
        heartbeat_s=min(heartbeat_s, REGISTER_S) if registers else heartbeat_s,
        devices=_devices(document, flags),
        nvml=nvml,
        registers=registers,
        probes=_probes(document, flags),
        kubelet=document.kubelet,
        plugins=document.plugins,
        in_labels=document.inventory_in == "labels",
    )


def _probes(document: AgentDocument, flags: AgentFlags) -> ProbeSettings:
    bandwidth, load = document.bandwidth, document.load
    return check_probes(
        msgspec.structs.replace(
            bandwidth, enabled=bandwidth.enabled or flags.bandwidth, nics=flags.nics or bandwidth.nics
        ),
        msgspec.structs.replace(load, enabled=load.enabled or flags.load),
    )


def _heartbeat_s(document: AgentDocument, flags: AgentFlags) -> float:
    value_s, path = document.heartbeat_seconds, "heartbeatSeconds"
    if flags.heartbeat_s is not None:
        value_s, path = flags.heartbeat_s, "--heartbeat"
    if not (math.isfinite(value_s) and 1.0 <= value_s <= _MAX_HEARTBEAT_S):
        raise ConfigError(f"{value_s:g} is not within 1 to {_MAX_HEARTBEAT_S:g} seconds", path=path)
    return value_s


def _devices(document: AgentDocument, flags: AgentFlags) -> tuple[str, ...]:
    paths, where = (flags.devices, "--devices") if flags.devices else (document.devices, "devices")
    for path in paths:
        if not path:
            raise ConfigError("an empty path is none", path=where)
        if paths.count(path) > 1:
            raise ConfigError(f"{path!r} is given twice", path=where)
    return paths


def _node_name(document: AgentDocument, flags: AgentFlags, environ: Mapping[str, str]) -> str:
    given = (
        (flags.node_name, "--node-name"),
        (document.node_name, "nodeName"),
        (environ.get(NODE_NAME_VARIABLE, ""), NODE_NAME_VARIABLE),
    )
    for name, where in given:
        if name:
            if not _NODE_NAME.fullmatch(name):
                raise ConfigError(
                    f"{name!r} is not a node name: lower-case letters, digits, - and . only", path=where
                )
            return name
    raise ConfigError(
        f"is needed: which node is this? Give it here, as nodeName in the file, or as {NODE_NAME_VARIABLE}"
        " in the environment (in a pod by a fieldRef of spec.nodeName)",
        path="--node-name",
    )
