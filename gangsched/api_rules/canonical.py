"""Objects as a Go server prints them after decoding: canonical quantities, no empty values.

Lives here: quantities in resource lists, the removal of nulls and empty values that Kubernetes' types omit.
Not here: a quantity's text (schema/quantities.py), defaults (pod_defaults). Objects from HTTP have been
decoded by their schema; objects made in process have not. Called by the kinds that have such fields. Source:
pkg/apis/core/v1/defaults.go (ResourceList) of Kubernetes 1.37.
"""

from __future__ import annotations

from typing import Any

from gangsched.api_rules.schema.quantities import BadText, Quantity
from gangsched.api_rules.schema.quantities import quantity as _quantity
from gangsched.api_rules.status import StatusError, bad_request


def quantity(text: str) -> Quantity:
    """Returns the quantity as kept in a resource list. Raises: BadText."""
    return _quantity(text, in_list=True)


def canonical_list(found: Any, kind: str, version: str = "v1") -> None:
    """Write a resource list's quantities in their canonical form, in place. Raises: StatusError 400."""
    if not found:
        return
    for name, given in found.items():
        text = given if type(given) is str else str(given)
        try:
            found[name] = quantity(text.strip()).text
        except BadText as error:
            raise not_decoded(kind, version, str(error)) from None


def not_decoded(kind: str, version: str, why: str) -> StatusError:
    """The server's answer to a body that cannot be decoded into the kind's type."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {kind}: {why}')


# Maps of strings or quantities: an empty map is omitted, the content of other maps is the user's.
_MAPS = frozenset(
    ("annotations", "data", "labels", "limits", "matchLabels", "nodeSelector", "overhead", "requests")
)
# Not pointers in Go, and omitted when false or zero: the same as absent.
_OMITTED_IF_ZERO = frozenset(
    [
        "hostIPC",
        "hostNetwork",
        "hostPID",
        "hostPort",
        "initialDelaySeconds",
        "readOnly",
        "stdin",
        "stdinOnce",
        "tty",
    ]
)


def tidy(obj: dict[str, Any]) -> None:
    """Remove empty values (null, empty text, empty lists) in place, except inside maps."""
    drop: list[str] = []
    for key, value in obj.items():
        if type(value) is dict:
            if key not in _MAPS:
                tidy(value)
            elif not value:
                drop.append(key)
        elif type(value) is list:
            if not value:
                drop.append(key)
            elif type(value[0]) is dict:
                for each in value:
                    if type(each) is dict:
                        tidy(each)
        elif value is None or value == "" or (not value and key in _OMITTED_IF_ZERO):
            drop.append(key)
    for key in drop:
        del obj[key]
