"""What a source of devices returns each time it is read: values, no I/O.

Made by `sources`, taken in by `reporter`, merged by `inventory`.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

import msgspec

from gangsched.model.devices import Device


class Silence(Enum):
    """What it means if a source does not answer for long."""

    SICKNESS = "its devices are not well"
    NOTHING = "what it last said stays"
    NORMAL = "it speaks when it is its turn, and is not waited for"


class Place(msgspec.Struct, frozen=True):
    """Where devices were found, by a name that people know, and which, by resource."""

    name: str
    listed: Mapping[str, tuple[Device, ...]]


class Report(msgspec.Struct, frozen=True):
    """All devices of a source, complete each time.

    problems: what a person should look at, one sentence each; repeated ones are not reported again. looked:
    where it looked and with what result, for when nothing is found at all. whole: false when a part could not
    be read and never was, so that an unlisted device may still exist.
    """

    source: str
    places: tuple[Place, ...] = ()
    problems: tuple[str, ...] = ()
    looked: str = ""
    whole: bool = True
