"""A pod's requirements on its devices beyond their number: annotation `gangsched.io/device-constraints`.

    {"nvidia.com/gpu": {"sameNUMA": true, "linked": "NV4", "model": ["H100", "H200"], "minMemory": "80Gi"}}

Lives here: the annotation's form. model.devices.sets finds the sets of devices that satisfy it.
"""

from __future__ import annotations

import re
from typing import Any

import msgspec

from gangsched.errors import ParseError
from gangsched.model.devices.links import LINK_KINDS, is_link_kind, link_weight
from gangsched.model.resources import MEMORY, amount_text, is_extended
from gangsched.model.text import bounded
from gangsched.model.text.quantity import to_int

CONSTRAINTS_KEY = "gangsched.io/device-constraints"
# The farthest path that `"linked": true` allows: any NVLink, whatever name an inventory gives it.
_DIRECT = "NV1"
_MAX_MODELS = 32
_MAX_BYTES = 8192
# Nesting levels: resources, the requirements on one resource, a list of models.
_MAX_DEPTH = 3


class DeviceConstraint(msgspec.Struct, frozen=True, gc=False):
    """The requirements on one resource, for the whole set that a pod gets.

    same_numa: all on one known NUMA node. link_weight: each pair is at least this near
    (model.devices.links.link_weight); 0: any distance. models: each device is one of these; empty: any.
    min_memory_mib: each has at least this.
    """

    same_numa: bool = False
    link_weight: int = 0
    models: tuple[str, ...] = ()
    min_memory_mib: int = 0

    @property
    def described(self) -> str:
        """For the reasons: "of one NUMA node, linked with each other, H100 or H200"."""
        parts = []
        if self.same_numa:
            parts.append("of one NUMA node")
        if self.link_weight:
            parts.append("linked with each other as asked")
        if self.models:
            parts.append("of model " + " or ".join(self.models))
        if self.min_memory_mib:
            parts.append(f"with at least {amount_text(MEMORY, self.min_memory_mib * 2**20)} each")
        return ", ".join(parts)

    def admits(self, model: str, memory_mib: int) -> bool:
        """Whether a device by itself may be in the set."""
        if memory_mib < self.min_memory_mib:
            return False
        return not self.models or any(_is_model(wanted, model) for wanted in self.models)


ANY = DeviceConstraint()


class _Written(msgspec.Struct, forbid_unknown_fields=True):
    same_numa: bool = msgspec.field(default=False, name="sameNUMA")
    linked: bool | str = False
    model: str | list[str] = ""
    min_memory: str | int = msgspec.field(default=0, name="minMemory")


_decode = bounded.decoder(dict[str, dict[str, Any]], max_bytes=_MAX_BYTES, max_depth=_MAX_DEPTH)


def parse_constraints(text: str) -> dict[str, DeviceConstraint]:
    """Reads the annotation; resources without requirements are left out. Raises: ParseError."""
    try:
        written = _decode(text)
    except (bounded.TooLong, bounded.TooDeep) as error:
        raise ParseError(str(error), field=CONSTRAINTS_KEY) from None
    except msgspec.MsgspecError as error:
        raise ParseError(
            f'is not of the form {{"nvidia.com/gpu": {{"sameNUMA": true}}}}: {error}', field=CONSTRAINTS_KEY
        ) from None
    found = {}
    for resource, asked in written.items():
        if not is_extended(resource):
            raise ParseError(
                f"{resource[:80]!r} is not an extended resource such as nvidia.com/gpu", field=CONSTRAINTS_KEY
            )
        try:
            constraint = _constraint(msgspec.convert(asked, _Written))
        except msgspec.MsgspecError as error:
            raise ParseError(f"{resource}: {error}{_KNOWN}", field=CONSTRAINTS_KEY) from None
        except ParseError as error:
            raise ParseError(f"{resource}: {error}", field=CONSTRAINTS_KEY) from None
        if constraint != ANY:
            found[resource] = constraint
    return found


_KNOWN = "; what can be asked: sameNUMA, linked, model, minMemory"


def _constraint(written: _Written) -> DeviceConstraint:
    models = [written.model] if isinstance(written.model, str) else written.model
    if isinstance(written.model, list) and (not models or not all(m.strip() for m in models)):
        raise ParseError("model: an empty name; leave model out where any will do")
    if len(models) > _MAX_MODELS:
        raise ParseError(f"model: {len(models)} names, at most {_MAX_MODELS}")
    return DeviceConstraint(
        same_numa=written.same_numa,
        link_weight=_farthest(written.linked),
        models=tuple(sorted({model.strip() for model in models if model.strip()})),
        min_memory_mib=_mib(written.min_memory),
    )


def _farthest(linked: bool | str) -> int:
    if isinstance(linked, bool):
        return link_weight(_DIRECT) if linked else 0
    if not is_link_kind(linked):
        raise ParseError(
            f"linked: {linked[:40]!r} is not a kind of path between devices; true means NVLink between every"
            f" two of them, or name the farthest that will do: NV4 (four links), {', '.join(LINK_KINDS)}"
        )
    return link_weight(linked)


def _mib(quantity: str | int) -> int:
    if isinstance(quantity, int) and quantity:
        raise ParseError(f'minMemory: {quantity} has no unit; write it as "80Gi"')
    if not quantity:
        return 0
    try:
        n_bytes = to_int(str(quantity))
    except ParseError as error:
        raise ParseError(f"minMemory: {error}") from None
    if n_bytes <= 0:
        raise ParseError(f"minMemory: {quantity} is not greater than 0")
    return -(-n_bytes // 2**20)


_WORD = re.compile(r"[a-z0-9.+]+")


def _is_model(wanted: str, model: str) -> bool:
    """Whether `model` has the words of `wanted` in order: H100 is "NVIDIA H100", A10 not "NVIDIA A100"."""
    asked, has = _WORD.findall(wanted.lower()), _WORD.findall(model.lower())
    return any(has[i : i + len(asked)] == asked for i in range(len(has) - len(asked) + 1)) and bool(asked)
