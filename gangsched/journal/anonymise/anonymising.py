"""Anonymising: renames a journal, keeping its decisions the same except for names.

The core's inputs are renamed, record by record, and passed to a second core; a first core gets the original
inputs. Their answers are compared call by call, under the renaming, so a journal is written only if no
decision depended on a name in a way that the renaming does not preserve. Its digests are those of the second
core. Called by the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import yaml

from gangsched.errors import ConfigError, GangschedError
from gangsched.extension.loading import KnownPlugins
from gangsched.journal.anonymise.renamed_state import renamed_by
from gangsched.journal.anonymise.renaming import Renaming, walk
from gangsched.journal.anonymise.vocabulary import own_words, words_of_plugins
from gangsched.journal.records import (
    End,
    Reconfigured,
    Record,
    Start,
    State,
    Turn,
    digest,
    framed,
    named_effects,
)
from gangsched.journal.replay.replaying import Divergence, Replay
from gangsched.journal.segments import Reader, Segment, Stream, name_of
from gangsched.journal.state import NotWritable, write_state
from gangsched.journal.unreadable import Ended, empty_among, lost_after, starts_of
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.effects import Effect
from gangsched.reading.strict import read_documents
from gangsched.whole_file import private

_FREE_TEXT = frozenset(("message", "problem"))
"""Sentences made by the core; they sort and shorten the names in them."""
_PROCESS = re.compile(r"([0-9]{8}T[0-9]{6}Z)-.*?-([0-9]{1,10})")
_MANY = 1000
# Limit on the characters shown of a differing effect.
_MAX_SHOWN = 300


class NotTheSame(GangschedError):
    """A decision depends on a name in a way that the renaming does not preserve."""


class Done(msgspec.Struct):
    """Counts of what was written.

    n_words: distinct words, numbers and IDs that were replaced. n_torn: segments cut off, as by a kill. lost:
    why other segments could not be read to their end. plugins: out-of-tree plugins whose names the journal
    contains.
    """

    n_words: int = 0
    n_segments: int = 0
    n_turns: int = 0
    n_effects: int = 0
    n_torn: int = 0
    lost: list[str] = msgspec.field(default_factory=list)
    plugins: tuple[str, ...] = ()


class Anonymising:
    """Anonymises one journal, in two passes. plugin_files: as for a replay; made: the files that it wrote."""

    def __init__(self, segments: Sequence[Segment], key: bytes, plugin_files: Sequence[str] = ()) -> None:
        """Raises: ConfigError (a segment cannot be read)."""
        self._plugin_files = plugin_files
        self._processes = [list(some) for _, some in groupby(segments, key=lambda one: one.process)]
        KnownPlugins(plugin_files)
        ours, theirs = own_words(), words_of_plugins(plugin_files)
        words, prose = ours.words | theirs.words, ours.prose | theirs.prose
        plugins = _plugins_in(segments)
        self._rename = Renaming(key, words | plugins, prose)
        self.done = Done(plugins=tuple(sorted(plugins)))
        self.made: list[Path] = []

    def write(self, out: Path) -> Done:
        """Writes into an empty directory. Raises: ConfigError, Divergence, NotTheSame, OSError."""
        for segments in self._processes:
            self._meet(segments)
        self._rename.settle()
        self.done.n_words = self._rename.n_words
        for number, segments in enumerate(self._processes, 1):
            self._process(segments, out, self._process_name(segments[0].process, number))
        return self.done

    def _meet(self, segments: Sequence[Segment]) -> None:
        """Collects all texts, including those of each state from which the second pass has to begin."""
        known: int | None = None
        for segment in segments:
            start: Start | None = None
            for record in Reader(segment.path):
                if isinstance(record, Start):
                    start = record
                elif isinstance(record, State) and start is not None and known != start.n_before:
                    known = start.n_before
                    _state_of(start, record, self._plugin_files, self._rename.collect_state)
                elif isinstance(record, Turn | Reconfigured) and start is not None:
                    known = (start.n_before if known is None else known) + 1
                _meet(record, self._rename)

    def _process_name(self, process: str, number: int) -> str:
        """Returns a new name that still sorts by when the process began."""
        found = _PROCESS.fullmatch(process)
        hashed = self._rename.hashed(process, 8)
        return f"{found[1]}-{hashed}-{found[2]}" if found else f"process{number:04}-{hashed}"

    def _process(self, segments: Sequence[Segment], out: Path, name: str) -> None:
        every = list(starts_of(segments))
        starts = [(one, start) for one, start in every if start is not None]
        self.done.lost += empty_among(every)
        both: _Both | None = None
        for number, (segment, start) in enumerate(starts):
            if both is None or both.was.n_turns != start.n_before:
                both = _Both(start, self._rename, self._plugin_files)
            upcoming = starts[number + 1] if number + 1 < len(starts) else None
            upto = None if upcoming is None else upcoming[1].n_before
            reader = Reader(segment.path)
            path = out / name_of(name, segment.number)
            with open(path, "xb", opener=private) as file:
                self.made.append(path)
                _written(file, both.records(reader, start, upto))
            self.done.n_segments += 1
            if why := lost_after(Ended(segment, reader, both.was.n_turns), upcoming):
                self.done.lost.append(why)
            else:
                self.done.n_torn += reader.is_cut
            self.done.n_turns += both.n_turns
            self.done.n_effects += both.n_effects
            both.n_turns = both.n_effects = 0


class _Both:
    """The core with its original inputs, and the core with renamed inputs."""

    def __init__(self, start: Start, rename: Renaming, plugin_files: Sequence[str]) -> None:
        self._rename = rename
        self._plugin_files = plugin_files
        self.was = Replay(start, plugin_files=plugin_files)
        self._now = _Second(_renamed_start(start, rename), plugin_files=plugin_files)
        self.n_turns = 0
        self.n_effects = 0

    def records(self, reader: Reader, start: Start, upto: int | None) -> Iterator[bytes]:
        """Yields a segment's records, renamed, up to the call with which the next segment begins."""
        yield framed(_renamed_start(start, self._rename))
        if start.n_before and self.was.played.n_turns:
            yield framed(State(write_state(self._now.scheduler, self._now.build)))
        for record in reader:
            if isinstance(record, Turn | Reconfigured):
                if self.was.n_turns == upto:
                    return
                yield framed(self._call(record))
            elif isinstance(record, End):
                yield framed(End(record.now_s, self._rename(record.why)))
            elif isinstance(record, State) and not self.was.played.n_turns:
                renamed = _state_of(start, record, self._plugin_files, self._rename)
                self.was.play(record)
                self._now.play(State(renamed))
                yield framed(State(renamed))

    def _call(self, record: Turn | Reconfigured) -> Turn | Reconfigured:
        effects = self.was.play(record)
        renamed = _renamed(record, self._rename)
        n = self.was.n_turns
        try:
            self._now.play(renamed)
        except (Divergence, ConfigError) as error:
            raise NotTheSame(f"call {n}: {error}") from None
        now, more = self._now.answer
        ours = _told(effects, self._rename)
        theirs = _told(now, None)
        if ours != theirs:
            raise NotTheSame(f"call {n}: {_first_difference(ours, theirs)}")
        self.n_turns += 1
        self.n_effects += len(now)
        return msgspec.structs.replace(renamed, effects=digest(now, more))


class _Second(Replay):
    """Keeps the answers instead of comparing them, as there is no digest yet."""

    answer: tuple[Sequence[Effect], Sequence[str]] = ((), ())

    def _compare(
        self, record: Turn | Reconfigured, effects: Sequence[Effect], recorded: str, more: Sequence[str] = ()
    ) -> None:
        self.played.now_s = record.now_s
        self.answer = effects, more


def _state_of(start: Start, state: State, plugin_files: Sequence[str], rename: Callable[[str], str]) -> bytes:
    """Returns the state with which a segment begins, with renamed texts."""
    core = Replay(start, plugin_files=plugin_files)
    core.play(state)
    try:
        return write_state(core.scheduler, core.build, renamed_by(rename))
    except NotWritable as error:
        raise ConfigError(f"the state that it begins with cannot be written again: {error}") from None


# -- records ---------------------------------------------------------------------------------------------


def _plugins_in(segments: Sequence[Segment]) -> frozenset[str]:
    """Returns the names of out-of-tree plugins, including those of later configurations."""
    records = (record for one in segments for record in Reader(one.path))
    return frozenset(
        name for record in records if isinstance(record, Start | Reconfigured) for name in record.plugins
    )


def _meet(record: Record, rename: Renaming) -> None:
    if isinstance(record, Start | Reconfigured):
        for document in _documents(record.config):
            walk(document, rename.collect)
        rename.collect(record.gap if isinstance(record, Start) else "")
    elif isinstance(record, Turn):
        walk(_decoded(record), rename.collect)
        for part in record.group or ():
            rename.collect(part)
    elif isinstance(record, End):
        rename.collect(record.why)


def _renamed_start(start: Start, rename: Renaming) -> Start:
    plugins = _unnamed(start.plugins)
    config, gap = _renamed_config(start.config, rename), rename(start.gap)
    return msgspec.structs.replace(start, config=config, plugins=plugins, gap=gap)


def _unnamed(plugins: Mapping[str, str]) -> dict[str, str]:
    """Returns the kind of each plugin's origin, by plugin name."""
    return {
        name: f"a {'file' if source.startswith('--plugin') else 'package'}, whose name is left out"
        for name, source in plugins.items()
    }


def _renamed(record: Turn | Reconfigured, rename: Renaming) -> Turn | Reconfigured:
    if isinstance(record, Reconfigured):
        config = _renamed_config(record.config, rename)
        return msgspec.structs.replace(record, config=config, plugins=_unnamed(record.plugins))
    events = msgspec.json.encode(walk(_decoded(record), rename))
    group = None if record.group is None else GroupKey(*map(rename, record.group))
    return msgspec.structs.replace(record, events=msgspec.Raw(events), group=group)


def _renamed_config(text: str, rename: Renaming) -> str:
    documents = [walk(one, rename) for one in _documents(text)]
    return str(yaml.safe_dump_all(documents, sort_keys=False))


def _documents(text: str) -> list[dict[str, Any]]:
    """Reads a configuration's documents. Raises: ConfigError (unreadable, or it contains aliases)."""
    documents = read_documents(text)
    if any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(text, yaml.CSafeLoader)):
        raise ConfigError("the journal's configuration has aliases, which none has that was recorded")
    return documents


def _decoded(turn: Turn) -> Any:
    """Raises: ConfigError."""
    try:
        return msgspec.json.decode(turn.events)
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
        raise ConfigError(f"a call of the journal is not readable: {error}") from None


# -- answers ---------------------------------------------------------------------------------------------


def _told(effects: Sequence[Effect], rename: Renaming | None) -> list[Any]:
    """Returns effects as plain values, without sentences."""
    plain = msgspec.json.decode(named_effects(effects))
    return [_without_text(one if rename is None else walk(one, rename.of_answer)) for one in plain]


def _without_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_text(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_text(one) for key, one in value.items() if key not in _FREE_TEXT}
    return value


def _first_difference(ours: list[Any], theirs: list[Any]) -> str:
    """Describes the first difference of two lists. What it shows is renamed."""
    at = next((k for k, (one, two) in enumerate(zip(ours, theirs, strict=False)) if one != two), None)
    if at is None:
        return f"{len(ours)} effects, and {len(theirs)} under other names"
    return f"{ours[at]!r:.{_MAX_SHOWN}}, and under other names {theirs[at]!r:.{_MAX_SHOWN}}"


def _written(file: BinaryIO, records: Iterator[bytes]) -> None:
    """Raises: OSError."""
    stream, waiting = Stream(), []
    for one in records:
        waiting.append(one)
        if len(waiting) == _MANY:
            file.write(stream.take(waiting))
            waiting.clear()
    file.write(stream.take(waiting) + stream.end())
