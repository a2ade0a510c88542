"""Records: one call of the core each, with all its inputs, and their bytes.

They are JSON, as are the events, so a journal can be read without this program (`zstd -dc FILE`). Each record
is preceded by its length and checksum. Called by the recorder and by replaying.
"""

from __future__ import annotations

import hashlib
import struct
import zlib
from collections.abc import Iterable, Sequence
from functools import cache
from typing import Annotated, Any, Literal, get_args

import msgspec

from gangsched.errors import ParseError
from gangsched.kube.watch.decode import followed
from gangsched.model import events as ev
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.effects import Effect
from gangsched.model.text.printable import clean

FORMAT = 1
"""Incremented with every change that an older reader would misread."""
HEAD = struct.Struct("<II")
"""Length and CRC-32 of the record that follows, including its final line feed."""
MAX_RECORD = 256 * 2**20
"""The largest list of 5,000 nodes comes in one call; a state of 150,000 pods may be larger."""
HISTORY_OVER, WORKLOAD_OVER = "the history is over", "the workload is over"
"""Why a journal ends that was made of something else (lab.importing)."""
# Limit on the cost of reading a record beyond its bytes. A cluster's objects have a comma per 30 bytes and a
# list per 190; a record of the shortest values takes 20 bytes of memory for each of its own.
_SPARE_VALUES = 1_000_000
_BYTES_A_VALUE, _BYTES_A_LIST = 12, 64
_WallS = Annotated[float, msgspec.Meta(ge=0.0, le=2.3e11)]
"""Up to the year 9258: after some decades more of a clock there are no dates."""
_NowS = Annotated[float, msgspec.Meta(ge=-4e9, le=4e9)]
_UNREADABLE = (msgspec.MsgspecError, RecursionError, UnicodeDecodeError)


class Start(msgspec.Struct, tag="start", array_like=True, frozen=True):
    """The first record of a segment: how the core was made.

    n_before: calls before it, in earlier segments or missing; `gap` states why they are missing. observed:
    whether the core had an observer, and whether also of plugins' calls, as its objects depend on that.
    wall_s: the time of day, in seconds since 1970, when the core's clock was at now_s. config: both documents
    of the configuration in effect, in YAML. plugins: the origins of out-of-tree plugins. versions: of this
    program and its numeric libraries.
    """

    format: int
    wall_s: _WallS
    now_s: _NowS
    leading: bool
    config: str
    plugins: dict[str, str]
    versions: dict[str, str]
    n_before: int = 0
    observed: Literal["no", "yes", "calls"] = "no"
    gap: str = ""


class State(msgspec.Struct, tag="state", array_like=True, frozen=True):
    """The core's whole state (journal.state), after `n_before` calls."""

    body: bytes


class Turn(msgspec.Struct, tag="turn", array_like=True, frozen=True):
    """One call. events: pairs of type and event, for handle; group: the one tried, for schedule.

    picks: random choices, pairs of (number of options, choice); stopped: which calls of out-of-tree plugins
    in this turn, counted from 1, hit their time limit. effects: the digest of the answer.
    """

    do: Literal["handle", "advance", "schedule"]
    now_s: _NowS
    effects: str
    events: msgspec.Raw = msgspec.Raw(b"[]")
    group: GroupKey | None = None
    picks: tuple[int, ...] = ()
    stopped: tuple[int, ...] = ()


class Reconfigured(msgspec.Struct, tag="config", array_like=True, frozen=True):
    """A new configuration is in effect; fields as in Start and Turn."""

    now_s: _NowS
    effects: str
    config: str
    plugins: dict[str, str]
    stopped: tuple[int, ...] = ()


class End(msgspec.Struct, tag="end", array_like=True, frozen=True):
    """The journal ends here; why: the reason."""

    now_s: _NowS
    why: str


Record = Start | State | Turn | Reconfigured | End

_encode = msgspec.json.Encoder().encode
_decoder: msgspec.json.Decoder[Record] = msgspec.json.Decoder(Record)
_decode_pairs = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]]).decode
_EVENTS: dict[str, type[Any]] = {one.__name__: one for one in get_args(ev.Event)}


def framed(record: Record) -> bytes:
    """Returns the record's bytes, as in a segment.

    Raises: ValueError, TypeError (it has no JSON form, or is too long to be read again).
    """
    body = _encode(record) + b"\n"
    if len(body) > MAX_RECORD:
        raise ValueError(f"it has {len(body) // 2**20} MiB, and at most {MAX_RECORD // 2**20} are read again")
    return HEAD.pack(len(body), zlib.crc32(body)) + body


def read_record(body: bytes) -> Record:
    """Raises: ParseError."""
    if (
        body.count(b",") > _SPARE_VALUES + len(body) // _BYTES_A_VALUE
        or body.count(b"[") > _SPARE_VALUES + len(body) // _BYTES_A_LIST
    ):
        raise ParseError("has a record of more values than its length gives reason for")
    try:
        return _decoder.decode(body)
    except _UNREADABLE as error:
        raise ParseError(f"is not a record of a journal: {clean(str(error))}") from None


def encoded_events(events: Iterable[ev.Event]) -> bytes:
    """Encodes events before the core gets them, as it keeps parts of them.

    Raises: ValueError, TypeError, RecursionError (one of them has no JSON form).
    """
    return _encode([(type(event).__name__, event) for event in events])


def read_events(raw: msgspec.Raw) -> list[ev.Event]:
    """Raises: ParseError."""
    try:
        return [_read_event(name, body) for name, body in _decode_pairs(raw)]
    except _UNREADABLE as error:
        raise ParseError(f"is not an event of a journal: {clean(str(error))}") from None


class _Put(msgspec.Struct):
    kind: str
    object: msgspec.Raw


_decode_put = msgspec.json.Decoder(_Put).decode


def _read_event(name: str, body: msgspec.Raw) -> ev.Event:
    if name == ev.ObjectPut.__name__:
        put = _decode_put(body)
        return ev.ObjectPut(put.kind, _reader_of(put.kind)(put.object))
    event: ev.Event = _decoder_of(name)(body)
    return event


# Plugins name the kinds, so there are few.
@cache
def _reader_of(kind: str) -> Any:
    """Returns the watch's decoder for objects of this kind."""
    return followed(kind).decode_object


@cache
def _decoder_of(name: str) -> Any:
    kind = _EVENTS.get(name)
    if kind is None:
        raise ParseError(f"{name[:80]!r} is not an event that this version knows")
    return msgspec.json.Decoder(kind).decode


def digest(effects: Sequence[Effect], more: Sequence[str] = ()) -> str:
    """Returns 16 hexadecimal digits that differ if effects differ; "" for no effects.

    more: the further kinds to watch for a new configuration.
    """
    if not effects and not more:
        return ""
    body = _encode([_named(effects), more])
    return hashlib.blake2b(body, digest_size=8).hexdigest()


def named_effects(effects: Sequence[Effect]) -> bytes:
    """Returns pairs of type and effect as JSON. Raises: ValueError, TypeError (one has no JSON form)."""
    return _encode(_named(effects))


def _named(effects: Sequence[Effect]) -> list[tuple[str, Effect]]:
    return [(type(effect).__name__, effect) for effect in effects]
