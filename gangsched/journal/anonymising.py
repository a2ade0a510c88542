"""Anonymising: a journal under other names, whose decisions are the same up to these names.

What the core was told is renamed, record by record, and told to a second core; beside it the first core is
told what it was told then. What they answer is compared call by call, under the renaming, so a journal is
written only if no decision hung on a name in a way that the renaming does not keep. Its digests are those of
the second core. Called by the command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, BinaryIO

import msgspec
import yaml

from gangsched.config.strict import read_documents
from gangsched.errors import ConfigError, GangschedError
from gangsched.extension.loading import KnownPlugins
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
from gangsched.journal.renamed_state import renamed_by
from gangsched.journal.renaming import Renaming, walk
from gangsched.journal.replaying import Divergence, Replay
from gangsched.journal.segments import Reader, Segment, Stream, name_of
from gangsched.journal.state import NotWritable, write_state
from gangsched.journal.unread import Ended, empty_among, lost_after, starts_of
from gangsched.journal.vocabulary import own_words, words_of_plugins
from gangsched.model.dialects.dialect import GroupKey
from gangsched.model.effects import Effect

_FREE_TEXT = frozenset(("message", "problem"))
"""Sentences that the core makes, which sort and shorten what they tell of."""
_PROCESS = re.compile(r"([0-9]{8}T[0-9]{6}Z)-.*?-([0-9]{1,10})")
_MANY = 1000
# What is between quotes in a configuration of this many characters is met as one text.
_MAX_SHOWN = 300


class NotTheSame(GangschedError):
    """A decision hangs on a name in a way that the renaming does not keep."""


class Done(msgspec.Struct):
    """What was written.

    n_words: different words, numbers and IDs that were replaced. n_torn: segments that end as a kill leaves
    them. lost: why others could not be read to their end. plugins: those that are not ours, of which the
    journal has the names.
    """

    n_words: int = 0
    n_segments: int = 0
    n_turns: int = 0
    n_effects: int = 0
    n_torn: int = 0
    lost: list[str] = msgspec.field(default_factory=list)
    plugins: tuple[str, ...] = ()


class Anonymising:
    """One journal, in two passes. plugin_files: as for a replay; made: the files that it wrote."""

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
        """Into a directory that is there and empty. Raises: ConfigError, Divergence (the journal does not
        replay), NotTheSame, OSError."""
        for segments in self._processes:
            self._meet(segments)
        self._rename.settle()
        self.done.n_words = self._rename.n_words
        for number, segments in enumerate(self._processes, 1):
            self._process(segments, out, self._process_name(segments[0].process, number))
        return self.done

    def _meet(self, segments: Sequence[Segment]) -> None:
        """Also of each state from which the second pass has to begin, as no calls lead to it."""
        known: int | None = None
        for segment in segments:
            start: Start | None = None
            for record in Reader(segment.path):
                if isinstance(record, Start):
                    start = record
                elif isinstance(record, State) and start is not None and known != start.n_before:
                    known = start.n_before
                    _state_of(start, record, self._plugin_files, self._rename.meet_state)
                elif isinstance(record, Turn | Reconfigured) and start is not None:
                    known = (start.n_before if known is None else known) + 1
                _meet(record, self._rename)

    def _process_name(self, process: str, number: int) -> str:
        """Sorts as it did: by when it began."""
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
            with open(path, "xb") as file:
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
    """The core as it was told then, and the core under other names."""

    def __init__(self, start: Start, rename: Renaming, plugin_files: Sequence[str]) -> None:
        self._rename = rename
        self._plugin_files = plugin_files
        self.was = Replay(start, plugin_files=plugin_files)
        self._now = _Second(_renamed_start(start, rename), plugin_files=plugin_files)
        self.n_turns = 0
        self.n_effects = 0

    def records(self, reader: Reader, start: Start, upto: int | None) -> Iterator[bytes]:
        """Those of a segment, renamed; to the call with which the next one begins."""
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
    """Keeps what it answers, of which there is no digest yet."""

    answer: tuple[Sequence[Effect], Sequence[str]] = ((), ())

    def _compare(
        self, record: Turn | Reconfigured, effects: Sequence[Effect], recorded: str, more: Sequence[str] = ()
    ) -> None:
        self.played.now_s = record.now_s
        self.answer = effects, more


def _state_of(start: Start, state: State, plugin_files: Sequence[str], rename: Callable[[str], str]) -> bytes:
    """The state that a segment begins with, its texts renamed."""
    core = Replay(start, plugin_files=plugin_files)
    core.play(state)
    try:
        return write_state(core.scheduler, core.build, renamed_by(rename))
    except NotWritable as error:
        raise ConfigError(f"the state that it begins with cannot be written again: {error}") from None


# -- records ---------------------------------------------------------------------------------------------


def _plugins_in(segments: Sequence[Segment]) -> frozenset[str]:
    """The names of those that are not ours, also of a configuration that came later."""
    records = (record for one in segments for record in Reader(one.path))
    return frozenset(
        name for record in records if isinstance(record, Start | Reconfigured) for name in record.plugins
    )


def _meet(record: Record, rename: Renaming) -> None:
    if isinstance(record, Start | Reconfigured):
        for document in _documents(record.config):
            walk(document, rename.meet)
        rename.meet(record.gap if isinstance(record, Start) else "")
    elif isinstance(record, Turn):
        walk(_decoded(record), rename.meet)
        for part in record.group or ():
            rename.meet(part)
    elif isinstance(record, End):
        rename.meet(record.why)


def _renamed_start(start: Start, rename: Renaming) -> Start:
    plugins = _unnamed(start.plugins)
    config, gap = _renamed_config(start.config, rename), rename(start.gap)
    return msgspec.structs.replace(start, config=config, plugins=plugins, gap=gap)


def _unnamed(plugins: Mapping[str, str]) -> dict[str, str]:
    """By name, what each comes from."""
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
    """Of a configuration. Raises: ConfigError (it cannot be read, or is larger when it is walked)."""
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
    """As plain values, without sentences."""
    plain = msgspec.json.decode(named_effects(effects))
    return [_without_text(one if rename is None else walk(one, rename.of_answer)) for one in plain]


def _without_text(value: Any) -> Any:
    if isinstance(value, list):
        return [_without_text(one) for one in value]
    if isinstance(value, dict):
        return {key: _without_text(one) for key, one in value.items() if key not in _FREE_TEXT}
    return value


def _first_difference(ours: list[Any], theirs: list[Any]) -> str:
    """Of two lists that differ. What it shows is renamed."""
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
