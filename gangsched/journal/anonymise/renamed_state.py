"""Writes a core's state as journal.state does, with every text renamed.

Texts that are not a user's stay: names of classes, attributes and array types, and places of objects. Not
here: how texts are renamed (journal.anonymise.renaming). Called by anonymising, for a journal that begins in
the middle.
"""

from __future__ import annotations

import pickle
import re
import types
from collections.abc import Callable
from datetime import datetime, timedelta
from enum import Enum
from typing import Any, BinaryIO, ClassVar

import msgspec

from gangsched.journal.anonymise.renaming import walk
from gangsched.journal.state import Forms, States, WriteStates

_TEXT = re.compile(rb"[A-Za-z]{6}")
_QUOTED = re.compile(r"(?<=/key )'((?:[^'\\]|\\.)*)'")


def renamed_by(rename: Callable[[str], str]) -> WriteStates:
    """Returns the writer for journal.state.write_state. rename: also called for texts that it keeps."""

    def write(out: BinaryIO, places: dict[int, str], states: States) -> None:
        _RenamingWriter(out, places, rename).dump(states)

    return write


class _Kept(str):
    """A text to write unchanged."""

    __slots__ = ()


class _KeptBytes(bytes):
    """Bytes of numbers, not of a text."""

    __slots__ = ()


_Pickler: Any = pickle._Pickler


class _RenamingWriter(Forms, _Pickler):  # type: ignore[misc]
    """Uses the slower pickler in Python, since only there each text can be intercepted."""

    def __init__(self, out: BinaryIO, places: dict[int, str], rename: Callable[[str], str]) -> None:
        super().__init__(out, protocol=5)
        self._places = places
        self._rename = rename
        self._is_plain = False

    def dump(self, states: States) -> None:
        """Writes the states, keeping their keys, which are places and attributes."""
        super().dump({_Kept(self._place(place)): _keys_kept(one) for place, one in states.items()})

    def _place(self, place: str) -> str:
        """Renames the profile names in a place, where they appear as Python literals."""
        return _QUOTED.sub(lambda found: f"'{self._rename(found[1])}'", place)

    def reducer_override(self, one: Any) -> Any:
        found = super().reducer_override(one)
        if found is NotImplemented:
            return _reduced(one)
        make, args = found
        if make.__name__ in ("_array", "_numbers", "_number", "_dtype"):
            return make, tuple(map(_kept, args))
        return found

    # Methods called by pickle, with its names.

    def save_pers(self, pid: Any) -> None:
        kept = self._place(pid) if isinstance(pid, str) else pid
        was, self._is_plain = self._is_plain, True
        super().save_pers(kept)
        self._is_plain = was

    def save_global(self, one: Any, name: str | None = None) -> None:
        was, self._is_plain = self._is_plain, True
        super().save_global(one, name)
        self._is_plain = was

    def _save_text(self, text: str) -> None:
        new = str.__str__(text) if self._is_plain or type(text) is _Kept else self._rename(text)
        self._save_once(new, super().save_str)

    def _save_once(self, made: str | bytes, save: Callable[[Any], None]) -> None:
        """Handles that a value made here may already be written: Python shares the empty text and single
        bytes.
        """
        known = self.memo.get(id(made))
        if known is None:
            save(made)
        else:
            self.write(self.get(known[0]))

    def _save_bytes(self, body: bytes) -> None:
        """Renames bytes: MessagePack, which serves as a key for equal objects; numbers stay."""
        if type(body) is _KeptBytes:
            self._save_once(bytes(body), super().save_bytes)
            return
        try:
            plain = msgspec.msgpack.decode(body)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError, ValueError):
            plain = None
        if isinstance(plain, list | dict):
            body = msgspec.msgpack.encode(walk(plain, self._rename))
        elif _TEXT.search(body):
            raise pickle.PicklingError("bytes of no known form, in which names could be")
        self._save_once(body, super().save_bytes)

    dispatch: ClassVar[dict[type, Any]] = {
        **_Pickler.dispatch,
        types.FunctionType: save_global,
        str: _save_text,
        _Kept: _save_text,
        bytes: _save_bytes,
        _KeptBytes: _save_bytes,
    }


def _reduced(one: Any) -> Any:
    """Returns the usual reduction, with unchanged attribute names."""
    if isinstance(one, Enum):
        return type(one), (_Kept(one.value) if isinstance(one.value, str) else one.value,)
    if isinstance(one, datetime | timedelta):
        found: Any = one.__reduce_ex__(5)
        return found[0], tuple(map(_kept, found[1]))
    if isinstance(one, type) or not type(one).__module__.startswith("gangsched"):
        return NotImplemented
    reduced: Any = one.__reduce_ex__(5)
    if isinstance(reduced, str) or len(reduced) < 3:
        return NotImplemented
    make, args, state, *rest = reduced
    if isinstance(state, dict):
        return make, args, _keys_kept(state), *rest
    if isinstance(state, tuple) and len(state) == 2:
        return make, args, tuple(_keys_kept(each) for each in state), *rest
    return NotImplemented


def _kept(one: Any) -> Any:
    return _Kept(one) if type(one) is str else _KeptBytes(one) if type(one) is bytes else one


def _keys_kept(state: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if state is None else {_Kept(name): value for name, value in state.items()}
