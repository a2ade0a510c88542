"""`gangsched anonymise DIR OUT --key FILE`: renames a journal so that it can be shared. Called by
command.cli.
"""

from __future__ import annotations

import argparse
import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from gangsched.command import printing
from gangsched.errors import ConfigError
from gangsched.journal.anonymise.anonymising import Anonymising, Done, NotTheSame
from gangsched.journal.directory import begin_empty, take_back
from gangsched.journal.replay.replaying import Divergence
from gangsched.journal.segments import segments_at
from gangsched.journal.unreadable import REPAIR
from gangsched.model.text.printable import clean, several
from gangsched.process.flags import add_plugin_flag

_MIN_KEY = 16
_MAX_KEY = 4096
_ENCODED = re.compile(r"[A-Za-z0-9+/_=-]*|-----(BEGIN|END) [A-Z ]+-----")
_NEW_KEY = "`openssl rand -out FILE 32; chmod 600 FILE` makes one"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Adds the arguments."""
    parser.description = (
        "Writes a journal under other names: namespaces, names, labels, annotations, images, IDs, addresses"
        " and messages are replaced, the same ones alike, by letters that a keyed hash and order choose."
        " Numbers, times and the words that Kubernetes and this program know stay. All decisions of both"
        " journals are made and compared: nothing is left in OUT unless they are the same up to names. Exit"
        " code 1: they are not, or not all of the journal could be read, and OUT has the rest."
    )
    parser.add_argument("journal", metavar="DIR", help="the directory, or one file of it")
    parser.add_argument(
        "out", metavar="OUT", help="where the new one goes: a directory that is empty or not there"
    )
    parser.add_argument(
        "--key",
        metavar="FILE",
        required=True,
        help=f"what the hash is keyed with: {_MIN_KEY} bytes or more, readable by you alone; keep it from"
        " those who get OUT",
    )
    add_plugin_flag(parser)


def run(args: argparse.Namespace) -> int:
    """Runs the command; returns the exit code. Raises: ConfigError."""
    key = _key(Path(args.key))
    segments = segments_at(Path(args.journal))
    out = Path(args.out)
    was_there = begin_empty(out)
    console = printing.console(160)
    plugins: tuple[str, ...] = ()
    made: Sequence[Path] = ()
    try:
        anonymising = Anonymising(segments, key, args.plugin)
        made = anonymising.made
        plugins = anonymising.done.plugins
        done = anonymising.write(out)
    except BaseException as error:
        take_back(out, made, was_there=was_there)
        if isinstance(error, OSError):
            raise ConfigError(f"cannot be written: {error.strerror}", source=args.out) from None
        if not isinstance(error, Divergence | NotTheSame):
            raise
        why = _why(error, plugins)
        console.print(f"{escape(why)}\nNothing is left in {escape(args.out)}.", soft_wrap=True)
        return 1
    _tell(done, args, console)
    return int(bool(done.lost))


def _tell(done: Done, args: argparse.Namespace, console: Console) -> None:
    def say(text: str) -> None:
        console.print(escape(text), soft_wrap=True)

    say(
        f"{several(done.n_segments, 'segment')} written to {args.out}: {several(done.n_turns, 'call')} and"
        f" {several(done.n_effects, 'effect')}, the same as in {args.journal} up to names."
        f" {done.n_words:,} different words, long numbers and IDs are replaced."
    )
    if done.n_torn:
        where = "ends" if done.n_torn == 1 else "end"
        say(f"{several(done.n_torn, 'segment')} {where} within a record: the one before that is the last.")
    for why in done.lost:
        say(f"Not all of it could be read: {clean(why)}. {REPAIR}")
    say("Times, numbers, lengths and the order of names stay: gangsched replay reads it like the first one.")
    if done.plugins:
        say(
            f"Plugins of yours decide in it: {clean(', '.join(done.plugins))}. They are not in it: who is to"
            " replay it needs their files too, and the words in these files were not replaced."
        )


def _why(error: Divergence | NotTheSame, plugins: Sequence[str]) -> str:
    if isinstance(error, Divergence):
        return f"The journal itself does not replay here: {clean(str(error))}. gangsched replay says more."
    names = ", ".join(plugins)
    ours = f"; if it is not one of your plugins that looks at it ({names}), please report it" if names else ""
    return (
        f"A decision would be another one under other names, at {clean(str(error))}. It hangs on a part of a"
        f" name, as with a pattern that ends within a word{ours or '; please report it'}."
    )


def _key(path: Path) -> bytes:
    """Raises: ConfigError."""
    try:
        with open(path, "rb") as file:
            found = os.fstat(file.fileno())
            key = file.read(_MAX_KEY + 1)
    except OSError as error:
        more = f"; {_NEW_KEY}" if isinstance(error, FileNotFoundError) else ""
        problem = f"cannot be read: {error.strerror}{more}"
        raise ConfigError(problem, path="--key", source=str(path)) from None
    if not _MIN_KEY <= len(key) <= _MAX_KEY:
        n = f"more than {_MAX_KEY}" if len(key) > _MAX_KEY else str(len(key))
        problem = f"has {n} bytes, {_MIN_KEY} to {_MAX_KEY} are needed; {_NEW_KEY}"
        raise ConfigError(problem, path="--key", source=str(path))
    if _is_prose(key):
        problem = f"has lines of text, and is no key that nobody could guess; {_NEW_KEY}"
        raise ConfigError(problem, path="--key", source=str(path))
    if found.st_mode & (stat.S_IRWXG | stat.S_IRWXO):
        mode = stat.S_IMODE(found.st_mode)
        problem = f"has mode {mode:04o}, so others have it too: chmod 600 {path}"
        raise ConfigError(problem, path="--key", source=str(path))
    return key


def _is_prose(key: bytes) -> bool:
    """Whether it looks like a text file such as /etc/passwd. A key has arbitrary bytes, is one line, or
    consists of lines of hexadecimal digits or base64.
    """
    try:
        lines = key.decode("utf-8").strip().replace("\t", " ").splitlines()
    except UnicodeDecodeError:
        return False
    is_text = all(line.isprintable() for line in lines)
    return len(lines) > 1 and is_text and not all(_ENCODED.fullmatch(line) for line in lines)
