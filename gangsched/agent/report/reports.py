"""What a source of devices returns each time it is read: values, no I/O.

Made by `sources`, taken in by `reporter`, merged by `inventory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from gangsched.model.devices.annotations import Device


class Silence(Enum):
    """What it means if a source does not answer for long."""

    SICKNESS = "its devices are not well"
    NOTHING = "what it last said stays"
    NORMAL = "it speaks when it is its turn, and is not waited for"


class Place(msgspec.Struct, frozen=True):
    """A place where devices were found, by a name for people, and the devices, by resource."""

    name: str
    listed: Mapping[str, tuple[Device, ...]]


class Report(msgspec.Struct, frozen=True):
    """All devices of a source, complete each time.

    problems: for people, one sentence each; repeated ones are not reported again. looked: where it searched
    and with what result, in case nothing is found at all. whole: false if a part could never be read, so that
    an unlisted device may exist.
    """

    source: str
    places: tuple[Place, ...] = ()
    problems: tuple[str, ...] = ()
    looked: str = ""
    whole: bool = True
