"""JSON from outside: limits on length and nesting depth, checked before anything walks it.

Decoding, comparing and encoding nested values recurse. At a few hundred levels they raise a RecursionError
that depends on the caller's own depth. So depth is counted here first, on the bytes, without recursion and at
memory speed. There are two ways to decode. `decoder` rejects text that is too long or too deep, with the
place; it is for annotations and files that people write. `lenient_decoder` reads an API server object without
the parts that are too deep: managedFields are a tree that any user shapes, and no field that we read is that
deep. Used by all rooms that decode JSON.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
import numpy as np
import numpy.typing as npt

T = TypeVar("T")
Text = bytes | str | msgspec.Raw
# The deepest field that we read, a term of a pod's affinity, is a third as deep.
MAX_DEPTH = 64
# The API server's limit for all annotations of an object together.
MAX_ANNOTATION = 256 * 1024
# A list of 5,000 nodes with everything that kubelets write is a quarter of this.
MAX_ANSWER = 256 * 2**20
_KEY = re.compile(rb'"((?:[^"\\]|\\.)*)"\s*:\s*\Z')
_MAX_SHOWN_KEYS = 6
_MAX_KEY = 256
_QUOTE, _OPEN, _CLOSE = ord('"'), (ord("{"), ord("[")), (ord("}"), ord("]"))


class TooLong(msgspec.DecodeError):
    """The text has too many bytes."""


class TooDeep(msgspec.DecodeError):
    """The text is nested too deep."""


def decoder(
    form: type[T], *, max_bytes: int = MAX_ANNOTATION, max_depth: int = MAX_DEPTH
) -> Callable[[Text], T]:
    """Returns a decoder of JSON as `form`. It raises: msgspec.MsgspecError, including TooLong and TooDeep."""
    decode = msgspec.json.Decoder(form).decode

    def decode_bounded(text: Text) -> T:
        check(text, max_bytes=max_bytes, max_depth=max_depth)
        try:
            found: T = decode(text)
        except UnicodeDecodeError as error:  # not a MsgspecError
            raise _not_text(error) from None
        return found

    return decode_bounded


def lenient_decoder(form: type[T]) -> Callable[[Text], T]:
    """Returns a decoder of JSON as `form` that leaves out parts nested too deep. It raises: MsgspecError."""
    keeps_all = form == dict[str, Any]
    return leniently(msgspec.json.Decoder(form).decode, keeps_all=keeps_all)


def leniently(
    decode: Callable[[bytes], T], *, keeps_all: bool = False, tell: Callable[[str], None] | None = None
) -> Callable[[Text], T]:
    """Wraps `decode` so that it leaves out parts nested too deep.

    keeps_all: `decode` keeps nested values of unknown form, so MAX_DEPTH limits the whole text. Otherwise
    only skipped parts can be that deep, and only parts that cannot be skipped are emptied. tell: called with
    what was too deep, and where.
    """

    def decode_leniently(text: Text) -> T:
        data = text if isinstance(text, bytes) else _bytes(text)
        if not (keeps_all and is_deep(data)):
            try:
                return decode(data)
            except RecursionError:
                pass
            except UnicodeDecodeError as error:
                raise _not_text(error) from None
        shallow, what = emptied_below(data)
        if tell is not None:
            tell(what)
        try:
            return decode(shallow)
        except RecursionError:  # brackets that are never closed: not JSON
            raise TooDeep(what) from None
        except UnicodeDecodeError as error:
            raise _not_text(error) from None

    return decode_leniently


def _not_text(error: UnicodeDecodeError) -> msgspec.DecodeError:
    return msgspec.DecodeError(f"not UTF-8 text: {error.reason}")


def check(text: Text, *, max_bytes: int = MAX_ANNOTATION, max_depth: int = MAX_DEPTH) -> None:
    """Raises: TooLong, TooDeep."""
    data = _bytes(text)
    if len(data) > max_bytes:
        raise TooLong(f"has {len(data)} characters, at most {max_bytes}")
    if is_deep(data, max_depth):
        raise TooDeep(_described(data, _Nesting(data), max_depth))


def is_deep(data: bytes, max_depth: int = MAX_DEPTH) -> bool:
    """Whether the text is nested deeper; examines brackets one by one only if there are enough of them."""
    if data.count(b"{") + data.count(b"[") <= max_depth:
        return False
    return _Nesting(data).deepest > max_depth


def emptied_below(text: Text, max_depth: int = MAX_DEPTH) -> tuple[bytes, str]:
    """Empties lists and objects at `max_depth` that contain others; returns the text and what was too deep.

    Also for several lines of JSON at once; "" if nothing was too deep.
    """
    data = _bytes(text)
    nesting = _Nesting(data)
    if nesting.deepest <= max_depth:
        return data, ""
    at = np.flatnonzero(nesting.levels == max_depth)
    parts: list[bytes] = []
    done = 0
    for begin, end in zip(at[:-1].tolist(), at[1:].tolist(), strict=True):
        if nesting.opens[begin] and not nesting.opens[end] and end > begin + 1:
            parts.append(data[done : nesting.places[begin] + 1])
            done = int(nesting.places[end])
    parts.append(data[done:])
    return b"".join(parts), _described(data, nesting, max_depth)


class _Nesting:
    """The brackets of a JSON text outside its strings.

    Shapes: places int64[n] in the text, opens bool[n], levels int64[n], 1 for the outermost value's brackets.
    """

    __slots__ = ("levels", "opens", "places")

    def __init__(self, data: bytes) -> None:
        # Pairs of backslashes first: in an odd run, the one left over before a quote escapes the quote.
        plain = data.replace(b"\\\\", b"__").replace(b'\\"', b"__") if b"\\" in data else data
        codes = np.frombuffer(plain, dtype=np.uint8)
        opens = (codes == _OPEN[0]) | (codes == _OPEN[1])
        brackets = opens | (codes == _CLOSE[0]) | (codes == _CLOSE[1])
        is_outside = np.cumsum(codes == _QUOTE) % 2 == 0
        self.places: npt.NDArray[np.int64] = np.flatnonzero(brackets & is_outside)
        self.opens: npt.NDArray[np.bool_] = opens[self.places]
        depth = np.cumsum(np.where(self.opens, 1, -1))
        self.levels: npt.NDArray[np.int64] = depth + ~self.opens

    @property
    def deepest(self) -> int:
        return int(self.levels.max(initial=0))


def _described(data: bytes, nesting: _Nesting, max_depth: int) -> str:
    first = int(np.argmax(nesting.levels > max_depth))
    where = _path(data, nesting, first)
    at = f" at {where}" if where else ""
    return f"is nested too deeply: {nesting.deepest} levels{at}, at most {max_depth}"


def _path(data: bytes, nesting: _Nesting, to: int) -> str:
    """Returns the first few keys that lead to a bracket, outermost first: `metadata.labels…`."""
    keys: list[str] = []
    for level in range(2, int(nesting.levels[to]) + 1):
        if len(keys) == _MAX_SHOWN_KEYS:
            return ".".join(keys) + "…"
        around = np.flatnonzero((nesting.levels[: to + 1] == level) & nesting.opens[: to + 1])
        place = int(nesting.places[around[-1]])
        found = _KEY.search(data[max(0, place - _MAX_KEY) : place])
        if found is not None:
            key = found.group(1).decode("utf-8", "replace")
            keys.append("".join(char if char.isprintable() else "?" for char in key[:80]))
    return ".".join(keys)


def _bytes(text: Text) -> bytes:
    return text.encode("utf-8", "surrogatepass") if isinstance(text, str) else bytes(text)
