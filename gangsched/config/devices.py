"""The device section of our settings. Floor 0; called by config only."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

import msgspec

from gangsched.config.documents.devices import Devices
from gangsched.config.profiles import ProfileConfig
from gangsched.errors import ConfigError
from gangsched.model.resources import is_extended

OnFailure = Literal["none", "evictMember", "evictGang"]
_MAX_SECONDS = 86_400.0
_DEVICES = "Devices"


class DeviceSettings(msgspec.Struct, frozen=True):
    """How IDs reach containers, and what happens to failed or mismatched devices.

    hand_off: how a resource's IDs reach the containers; by environment if not listed. `count`: no IDs are
    assigned. `device-plugin`: binds of pods that kubelet could confuse are spaced. require: resources whose
    IDs must be known, in every profile (plugins.resources.devices). allocation_in: where a Binding carries a
    pod's IDs (model.devices.labels); both places are read. repair: wrong device annotations of pods are
    corrected, which takes the verb patch on pods. on_mismatch: what happens to a pod whose devices are
    unusable for it. on_failure: what happens to pods whose device has been unhealthy for failure_grace_s; the
    same group is not evicted for that again within failure_again_s. order: which of the devices that would do
    a resource claim gets (core.resource_claims.search.better).
    """

    hand_off: Mapping[str, str] = {}
    require: tuple[str, ...] = ()
    allocation_in: Literal["annotations", "labels"] = "annotations"
    repair: bool = False
    on_mismatch: Literal["none", "evict"] = "none"
    on_failure: OnFailure = "none"
    failure_grace_s: float = 30.0
    failure_again_s: float = 600.0
    order: Literal["better", "upstream"] = "better"

    @property
    def picks_better(self) -> bool:
        """Whether resource claims get the better ones of the devices that would do."""
        return self.order == "better"

    @property
    def counted(self) -> frozenset[str]:
        """Resources whose IDs are not assigned."""
        return frozenset(name for name, way in self.hand_off.items() if way == "count")

    @property
    def in_labels(self) -> bool:
        """Whether a pod's IDs are written as labels."""
        return self.allocation_in == "labels"

    @property
    def spaced(self) -> frozenset[str]:
        """Resources that kubelet's device plugins hand out."""
        return frozenset(name for name, way in self.hand_off.items() if way == "device-plugin")


def resolve_devices(written: Devices) -> DeviceSettings:
    """Raises: ConfigError."""
    for name in written.hand_off:
        if not is_extended(name):
            raise ConfigError(
                f"{name!r} is not an extended resource such as nvidia.com/gpu", path="devices.handOff"
            )
    for i, name in enumerate(written.require):
        at = f"devices.require[{i}]"
        if not is_extended(name):
            raise ConfigError(f"{name!r} is not an extended resource such as nvidia.com/gpu", path=at)
        if written.hand_off.get(name) == "count":
            raise ConfigError(f"devices.handOff counts {name}, so it never gets IDs", path=at)
    for field, value, least in (
        ("failureGraceSeconds", written.failure_grace_seconds, 0.0),
        ("failureAgainSeconds", written.failure_again_seconds, 0.0),
    ):
        if not (math.isfinite(value) and least <= value <= _MAX_SECONDS):
            raise ConfigError(f"{value:g} is not within {least:g}..{_MAX_SECONDS:g}", path=f"devices.{field}")
    return DeviceSettings(
        hand_off=dict(sorted(written.hand_off.items())),
        require=tuple(dict.fromkeys(written.require)),
        allocation_in=written.allocation_in,
        repair=written.repair_annotations,
        on_mismatch=written.on_mismatch,
        on_failure=written.on_device_failure,
        failure_grace_s=written.failure_grace_seconds,
        failure_again_s=written.failure_again_seconds,
        order=written.device_order,
    )


def with_required(profiles: tuple[ProfileConfig, ...], devices: DeviceSettings) -> tuple[ProfileConfig, ...]:
    """Makes each profile's plugin Devices require what the device settings list, besides its own argument."""
    found = []
    for i, profile in enumerate(profiles):
        args = profile.args.get(_DEVICES)
        if devices.require and (args is None or _DEVICES not in profile.plugins["preFilter"]):
            raise ConfigError(
                f"profiles[{i}] does not run the plugin {_DEVICES} at preFilter, which sees to it",
                path="devices.require",
            )
        if args is not None:
            for name in args.require:
                if name in devices.counted:
                    raise ConfigError(
                        f"devices.handOff counts {name}, so it never gets IDs",
                        path=f"profiles[{i}].pluginConfig: {_DEVICES}.args.require",
                    )
            required = tuple(dict.fromkeys((*args.require, *devices.require)))
            args = msgspec.structs.replace(args, require=required)
            profile = msgspec.structs.replace(profile, args={**profile.args, _DEVICES: args})
        found.append(profile)
    return tuple(found)
