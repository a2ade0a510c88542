"""Amounts of capacity and counters, exact: read, rounded to what a device gives out, and written.

A quantity is an integer of billionths, the smallest that Kubernetes keeps. Source: k8s.io/apimachinery
v0.37.1 `pkg/api/resource`, k8s.io/dynamic-resource-allocation v0.37.1
`structured/internal/incubating/consumable_capacity.go`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gangsched.errors import ParseError
from gangsched.model.resource_claims.objects import Amount, CapacityPolicy, CapacityRange, DeviceCapacity

UNIT = 10**9
_INT64 = 2**63 - 1
_MAX_CHARS = 256
# With a larger exponent it would be a number of that many digits.
_MAX_EXPONENT = 400
_QUANTITY = re.compile(
    r"([+-]?)([0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE]([+-]?[0-9]{1,4})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}


class CapacityError(Exception):
    """A request that no device's arithmetic can represent, which ends the whole allocation."""


class Consumption(NamedTuple):
    """How much a request takes of one capacity, and as which text it is written."""

    amount: int
    text: str


@lru_cache(maxsize=16384)
def billionths(text: Amount) -> int:
    """Reads 500m, 64Gi, 1e3, rounded away from zero. Raises: ParseError."""
    text = str(text)
    found = _QUANTITY.fullmatch(text) if len(text) <= _MAX_CHARS else None
    if found is None:
        raise ParseError(f"{text[:40]!r} is not a quantity; examples: 2, 500m, 64Gi, 1e3")
    sign, number, exponent, suffix = found.groups()
    whole, _, fraction = number.partition(".")
    amount: int = int(whole + fraction)
    power = 9 - len(fraction)
    if suffix in _BINARY:
        amount <<= _BINARY[suffix]
    else:
        power += int(exponent) if exponent else _DECIMAL[suffix or ""]
    if abs(power) > _MAX_EXPONENT:
        raise ParseError(f"{text[:40]!r} has an exponent beyond {_MAX_EXPONENT}")
    amount = amount * int(10**power) if power >= 0 else -(-amount // int(10**-power))
    return -amount if sign == "-" else amount


def written(amount: int, like: Amount) -> str:
    """Returns the amount as Kubernetes writes it, in powers of 2 if `like` is in them."""
    if str(like).endswith("i") and amount % UNIT == 0 and abs(amount) >= 1024 * UNIT:
        units = amount // UNIT
        for suffix, power in reversed(_BINARY.items()):
            if units % (1 << power) == 0:
                return f"{units >> power}{suffix}"
        return str(units)
    scale = next(power for power in reversed(_DECIMAL.values()) if amount % 10 ** (9 + power) == 0)
    digits = amount // 10 ** (9 + scale)
    if not amount:
        return "0"
    if "e" in str(like) or ("E" in str(like) and not str(like).endswith("E")):
        return f"{digits}e{scale}" if scale else str(digits)
    return f"{digits}{next(suffix for suffix, power in _DECIMAL.items() if power == scale)}"


def consumption(
    requests: Mapping[str, Amount] | None, capacities: Mapping[str, DeviceCapacity]
) -> dict[str, Consumption] | None:
    """How much a request takes of each of a device's capacities; None: the device cannot serve it.

    Capacities that are not requested are taken by their policy's default, without one as a whole.
    Raises: CapacityError, ParseError.
    """
    if requests and any(name not in capacities for name in requests):
        return None
    taken = {name: _one(name, (requests or {}).get(name), one) for name, one in capacities.items()}
    for name, one in capacities.items():
        amount = taken[name].amount
        if _violates(amount, one.request_policy) or amount > billionths(one.value):
            return None
    return taken


def _one(name: str, requested: Amount | None, capacity: DeviceCapacity) -> Consumption:
    policy = capacity.request_policy
    text: Amount | None = requested
    if requested is None:
        text = policy.default if policy is not None and policy.default is not None else capacity.value
    elif policy is None:
        text = requested
    elif policy.valid_range is not None and policy.valid_range.min is not None:
        found = _rounded_up(name, requested, policy.valid_range, policy.valid_range.min)
        if isinstance(found, Consumption):
            return found
        text = found
    elif policy.valid_values is not None:
        amount = billionths(requested)
        text = next((one for one in policy.valid_values if amount <= billionths(one)), requested)
    assert text is not None
    amount = billionths(text)
    if amount < 0:
        raise CapacityError(f"capacity {name!r}: capacity value is negative")
    return Consumption(amount, str(text))


def _rounded_up(name: str, requested: Amount, allowed: CapacityRange, least: Amount) -> Amount | Consumption:
    amount, low = billionths(requested), billionths(least)
    if amount < low:
        return least
    if allowed.step is None:
        return requested
    if amount > _INT64 * UNIT:
        raise CapacityError(f"capacity {name!r}: request {requested} exceeds MaxInt64")
    whole, step = _whole(low), _step(allowed.step)
    rounded = whole + -(-(_whole(amount) - whole) // step) * step
    if rounded > _INT64:
        raise CapacityError(
            f"capacity {name!r}: rounding request {requested} up to the next step passes the largest number"
        )
    return Consumption(rounded * UNIT, written(rounded * UNIT, allowed.step))


def _whole(amount: int) -> int:
    """In whole units, rounded up. Kubernetes 1.37 counts ranges in thousandths behind a gate only, which is
    off as long as a cluster is compatible with 1.36 (DRAFractionalCapacityRange)."""
    return -(-amount // UNIT)


def _step(step: Amount) -> int:
    """The API server accepts positive steps only; any other one is as good as none."""
    return max(1, _whole(billionths(step)))


def _violates(amount: int, policy: CapacityPolicy | None) -> bool:
    if policy is None or (policy.default is not None and amount == billionths(policy.default)):
        return False
    allowed = policy.valid_range
    if allowed is None:
        values = policy.valid_values
        return bool(values) and all(billionths(one) != amount for one in values or ())
    if allowed.max is not None and amount > billionths(allowed.max):
        return True
    if allowed.step is None:
        return False
    return (_whole(amount) - _whole(billionths(allowed.min or 0))) % _step(allowed.step) != 0
