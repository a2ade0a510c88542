"""Segments: the files of a journal, written and read.

A segment consists of framed records in zstd streams, one for its beginning and one for the rest. Streams are
flushed at the end of a record, so that flushed data can be read whatever happens to the rest: a killed
process or a full disk loses at most the last record. Files are named after their process and numbered:
`PROCESS.0001.journal.zst`. Reading trusts nothing: lengths are bounded before anything is read, checksums
compared before anything is decoded.
"""

from __future__ import annotations

import os
import re
import stat
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, NamedTuple

import zstandard

from gangsched.errors import ConfigError, ParseError
from gangsched.journal.records import FORMAT, HEAD, MAX_RECORD, Record, Start, read_record
from gangsched.kube.access.files import open_regular

SUFFIX = ".journal.zst"
PART = ".journal.part"
"""Suffix of a file that is not yet a segment."""
_NAME = re.compile(r"(?P<process>[\w.-]+)\.(?P<number>[0-9]{4,9})\.journal\.zst")
_LEVEL = 1
"""zstd's level: half the time of level 3 for a tenth more bytes."""
# We never write a larger window, and reading one takes that much memory.
_MAX_WINDOW = 2**27
# Four bytes can expand to a block of 128 kB of one letter, so this much becomes 32 MB at most.
_PIECE = 2**10


class Segment(NamedTuple):
    """A file of a journal, by its name."""

    path: Path
    process: str
    number: int


class Stream:
    """Compresses records; write what `take` returns unchanged."""

    def __init__(self) -> None:
        self._stream = zstandard.ZstdCompressor(level=_LEVEL).compressobj()

    def take(self, records: list[bytes]) -> bytes:
        """Returns these records compressed and flushed, so that they are readable once written."""
        packed = self._stream.compress(b"".join(records))
        return packed + self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)

    def end(self) -> bytes:
        return self._stream.flush(zstandard.COMPRESSOBJ_FLUSH_FINISH)


def name_of(process: str, number: int) -> str:
    return f"{process}.{number:04}{SUFFIX}"


def part_of(path: Path) -> Path:
    """Returns the path where a segment is begun."""
    return path.with_name(path.name.removesuffix(SUFFIX) + PART)


@contextmanager
def naming(path: Path) -> Iterator[None]:
    """Adds the file's name to errors in what is read there. Raises: ConfigError."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(error.message, path=error.path, source=error.source or str(path)) from None


def segments_in(directory: Path) -> list[Segment]:
    """Returns all segments in it, oldest process first. Raises: ConfigError (it cannot be read)."""
    try:
        names = os.listdir(directory)
    except OSError as error:
        raise ConfigError(f"cannot be read: {error.strerror}", source=str(directory)) from None
    found = []
    for name in names:
        match = _NAME.fullmatch(name)
        if match is not None:
            found.append(Segment(directory / name, match["process"], int(match["number"])))
    return sorted(found, key=lambda one: (one.process, one.number))


def segments_at(path: Path) -> list[Segment]:
    """Returns the segments in a directory, or this file as one. Raises: ConfigError (there is none)."""
    try:
        is_directory = stat.S_ISDIR(os.stat(path).st_mode)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "it is not a path"
        raise ConfigError(f"cannot be read: {why}", source=str(path)) from None
    if is_directory:
        found = segments_in(path)
        problem = "has no journal: no file named *.journal.zst"
    else:
        match = _NAME.fullmatch(path.name)
        found = [] if match is None else [Segment(path, match["process"], int(match["number"]))]
        problem = "is not a journal: its files are named *.journal.zst, as gangsched writes them"
    if not found:
        raise ConfigError(problem, source=str(path))
    return found


class _Cut(ParseError):
    """The bytes end within a record."""


class Reader:
    """The records of one segment, to the last whole one.

    torn: why that is not the end, and at which byte of the decompressed data; "" if it is. is_cut: nothing
    follows there, as after a kill.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.torn = ""
        self.is_cut = False

    def __iter__(self) -> Iterator[Record]:
        """Raises: ConfigError (it cannot be read, or is of another format)."""
        try:
            with open_regular(str(self.path)) as file:
                yield from self._records(_Unpacked(file))
        except OSError as error:
            raise ConfigError(f"cannot be read: {error.strerror}", source=str(self.path)) from None

    def _records(self, unpacked: _Unpacked) -> Iterator[Record]:
        is_first = True
        while True:
            at = unpacked.n_taken
            try:
                body = self._body(unpacked)
                if body is None:
                    return
                record = read_record(body)
            except ParseError as error:
                if is_first:
                    raise ConfigError(
                        f"is not a journal of gangsched: {error}", source=str(self.path)
                    ) from None
                self.torn = f"{error}, at byte {at:,} of what zstd -dc makes of it"
                self.is_cut = isinstance(error, _Cut)
                return
            if is_first:
                self._check(record)
                is_first = False
            yield record

    def _body(self, unpacked: _Unpacked) -> bytes | None:
        """Returns the next record's body; None at the end. Raises: ParseError."""
        head = unpacked.read(HEAD.size)
        if not head:
            return None
        if len(head) < HEAD.size:
            raise _Cut("ends within a record")
        n_bytes, checksum = HEAD.unpack(head)
        if n_bytes > MAX_RECORD:
            raise ParseError(f"has a record of {n_bytes} bytes, more than {MAX_RECORD}")
        body = unpacked.read(n_bytes)
        if len(body) < n_bytes:
            raise _Cut("ends within a record")
        if zlib.crc32(body) != checksum:
            raise ParseError("has a record whose checksum is wrong")
        return body

    def _check(self, record: Record) -> None:
        if not isinstance(record, Start):
            raise ConfigError("does not begin as a journal of gangsched does", source=str(self.path))
        if record.format != FORMAT:
            problem = f"is of format {record.format}; this version reads {FORMAT}"
            raise ConfigError(problem, source=str(self.path))


def _stream() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=_MAX_WINDOW).decompressobj()


class _Unpacked:
    """The decompressed bytes. Flushed data is read even if the end is missing.

    n_taken: how many were read.
    """

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._stream = _stream()
        self._ready = bytearray()
        self.n_taken = 0

    def read(self, n: int) -> bytes:
        """Returns n bytes, or fewer at the end. Raises: ParseError."""
        while len(self._ready) < n:
            piece = b""
            if self._stream.eof:  # the state at a segment's beginning is a separate stream
                piece = self._stream.unused_data
                self._stream = _stream()
            piece = piece or self._file.read(_PIECE)
            if not piece:
                break
            try:
                self._ready += self._stream.decompress(piece)
            except zstandard.ZstdError as error:
                raise ParseError(f"is not readable: {error}") from None
        taken = bytes(self._ready[:n])
        del self._ready[:n]
        self.n_taken += len(taken)
        return taken
