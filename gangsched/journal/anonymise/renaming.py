"""Renaming: replaces every word of a text, consistently and keeping the order of words.

A text is split where names are joined (`/`, `.`, `-`, `,`, JSON), so that names that the core splits or joins
are renamed consistently. Words that the program itself knows stay, as do times and numbers with their units.
Every other word becomes letters chosen by its place in the alphabet and a keyed hash (HMAC-SHA256). Order is
kept, since ties are broken by names; that takes two passes, one that collects all words and one that replaces
them. Also kept are case, length (of short words if there is room), and whether a part of a name looks like a
suffix made by Kubernetes: such a mix of letters and digits keeps its length and its place among all other
parts and numbers. UUIDs and addresses are replaced by others (special_texts).

Lives here: texts. Not here: records. Called by anonymising.
"""

from __future__ import annotations

import hmac
import json
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator
from enum import Enum
from functools import lru_cache, partial
from typing import Any

import msgspec

from gangsched.errors import InvariantError
from gangsched.journal.anonymise.new_words import new_words, number_of
from gangsched.journal.anonymise.ordered_names import (
    SUFFIX_LETTERS,
    elsewhere,
    in_base,
    in_between,
)
from gangsched.journal.anonymise.special_texts import SPECIAL, new_addresses

# Shorter numbers are ordinals, sizes and times; longer ones in a name may identify a person.
_MAX_DIGITS = 7
_MAX_NESTED = 6
"""Depth of JSON within strings of JSON."""
_DIGITS = "0123456789"
_HEX = "0123456789abcdef"
_HEX_RANKED = 8
"""Number of digits chosen by the order; the hash chooses the rest."""

_LETTER = r"[A-Za-z0-9\u0080-\U0010ffff]"
_CHUNK = re.compile(rf"{_LETTER}(?:(?:{_LETTER}|[._/-])*{_LETTER})?")
_NUMBER = re.compile(
    r"(?:[0-9]{1,7}(?:\.[0-9]{1,9})?"
    r"(?:[KMGTPE]i|[numkMGTPE]|[kKMGT]?i?B(?:/s|ps)?|[kMGT]bit(?:/s)?|[kMGT]bps)?"
    r"|(?:[0-9]{1,7}(?:\.[0-9]{1,9})?(?:ns|us|ms|s|m|h|d))+)"
)
_BARE = re.compile(r"[0-9]+(?:\.[0-9]+)?(?:[KMGTPE]i?|[num])?")
_PREFIXES = ("hugepages-", "attachable-volumes-", "requests.")
_SUFFIX = re.compile(r"[bcdfghjklmnpqrstvwxz2456789]{5,10}")
"""The same as in gangsched.core.queueing.walltimes."""
_PARTS = re.compile(r"[-_]|[^-_]+")
_RUNS = re.compile(r"[0-9]+|[^0-9]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


# Fields whose values are amounts, however long.
_AMOUNTS = frozenset(("requests", "limits", "allocatable", "capacity", "overhead"))
_AMOUNT = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3}|[A-Za-z]{1,2})?")
_VERSIONS = frozenset(("resourceVersion", "resource_version"))


class Kind(Enum):
    KEPT = "kept"
    WORD = "word"
    SUFFIX = "suffix"
    MIXED = "mixed"
    """Runs of letters and digits, each renamed separately."""
    DIGITS = "digits"
    HEX = "hex"
    ADDRESS = "address"


_SPECIAL_KINDS = {"time": Kind.KEPT, "hex": Kind.HEX, "address": Kind.ADDRESS}
Token = tuple[Kind, str]


class Renaming:
    """First call `meet` for every text, then `settle`; after that, calling it replaces a text."""

    def __init__(self, key: bytes, known: Iterable[str], prose: Iterable[str] = ()) -> None:
        """known: words that stay; prose: words that also stay in sentences."""
        self._key = key
        self._known = frozenset(known)
        self._prose = frozenset(prose)
        self._most_labels = max((one.count(".") + 1 for one in self._known), default=0)
        self._met: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        self._new: dict[Token, str] = {}
        self._texts: set[str] = set()
        self._replaced: Callable[[str], str] = lru_cache(2**17)(self._replace)
        self._answered: Callable[[str], str] = lru_cache(2**14)(partial(self._replace, strict=False))

    @property
    def n_words(self) -> int:
        return len(self._new)

    def collect(self, text: str) -> None:
        if text in self._texts:
            return
        self._texts.add(text)
        for one in _strings_of(text):
            if one is text or _is_json(one):  # JSON nested too deep in JSON is replaced as plain text
                self._meet_words(one)
            else:
                self.collect(one)

    def _meet_words(self, text: str) -> None:
        for kind, token in self._tokens(text):
            self._met[kind].add(token)
            for run_kind, run in _runs(token) if kind is Kind.MIXED else ():
                self._met[run_kind].add(run)

    def collect_state(self, text: str) -> str:
        """Does the same for a text in a state, whose field is unknown; returns it unchanged. A number there
        is an amount or a version.
        """
        if not _BARE.fullmatch(text):
            self.collect(text)
        return text

    def settle(self) -> None:
        """Chooses the new words, once every text has been met."""
        self._texts.clear()
        met = self._met
        words = {one.lower() for one in met[Kind.WORD]}
        anchors = {run.lower() for one in met[Kind.KEPT] for run in re.findall(r"[A-Za-z]{2,}", one)}
        taken = words | met[Kind.SUFFIX] | anchors | {one.lower() for one in self._known}
        new = new_words(words, anchors - words, taken, self.hashed)
        self._new |= {(Kind.WORD, one): text for one, text in new.items()}
        bounds = _bounds(met[Kind.SUFFIX])
        self._settle_digits(bounds)
        self._settle_hex()
        self._new |= {(Kind.ADDRESS, one): new for one, new in new_addresses(met[Kind.ADDRESS]).items()}
        self._settle_suffixes(bounds, taken)

    def __call__(self, text: str) -> str:
        """Returns the renamed text. Raises: InvariantError (it was not met; it must not go out as is)."""
        return self._replaced(text)

    def of_answer(self, text: str) -> str:
        """Does the same for a text of the core's answer, whose own words were never met."""
        return self._answered(text)

    def hashed(self, text: str, n: int, alphabet: str = _HEX) -> str:
        """Returns n letters derived from the key and the text."""
        found: list[str] = []
        for block in range(-(-n // 32)):
            digest = hmac.digest(self._key, f"{block}:{text}".encode(errors="surrogatepass"), "sha256")
            found += (alphabet[byte % len(alphabet)] for byte in digest)
        return "".join(found[:n])

    # -- the second pass ---------------------------------------------------------------------------------

    def _replace(self, text: str, nested: int = 0, *, strict: bool = True) -> str:
        if text in self._known:
            return text
        if nested < _MAX_NESTED and _is_json(text):

            def string(found: re.Match[str]) -> str:
                raw = found[0]
                new = self._replace(json.loads(raw, strict=False), nested + 1, strict=strict)
                return json.dumps(new, ensure_ascii="\\u" in raw)

            return _STRING.sub(string, text)
        return "".join(self._renamed(kind, token, strict) for kind, token in self._tokens(text))

    def _renamed(self, kind: Kind, token: str, strict: bool) -> str:
        if kind is Kind.KEPT:
            return token
        if kind is Kind.MIXED:
            return "".join(self._renamed(each, run, strict) for each, run in _runs(token))
        new = self._new.get((kind, token.lower() if kind is Kind.WORD else token))
        if new is not None:
            return _as_cased(new, token) if kind is Kind.WORD else new
        if strict and kind is not Kind.DIGITS:  # an amount in a state is not a name and was not met
            raise InvariantError("a text that is to be renamed was not met before")
        return token

    # -- the table ---------------------------------------------------------------------------------------

    def _settle_digits(self, bounds: dict[str, str]) -> None:
        """Chooses numbers in order with the shorter ones, which stay; without a leading zero."""
        met = self._met[Kind.DIGITS]
        others = {one: one for one in self._met[Kind.KEPT] if one.isdigit()} | {"1": "1"} | bounds
        found = in_between(sorted(met), others, _DIGITS, met, self.hashed)
        taken = met | set(found.values())
        found |= elsewhere(sorted(met - found.keys()), _DIGITS, taken, self.hashed)
        self._new |= {(Kind.DIGITS, one): new for one, new in found.items()}

    def _settle_hex(self) -> None:
        """Chooses digits in order, at random distances, each with the old number of digits."""
        ordered = sorted(self._met[Kind.HEX], key=lambda one: one.lower())
        low = 16 ** (_HEX_RANKED - 1)
        step = max(15 * low // (len(ordered) + 1), 1)
        for at, one in enumerate(ordered):
            text = in_base(low + step * at + number_of(self.hashed, one, step), _HEX, _HEX_RANKED)
            left = iter(text + self.hashed(one, sum(char != "-" for char in one) - _HEX_RANKED))
            new = "".join(char if char == "-" else next(left) for char in one)
            self._new[Kind.HEX, one] = new.upper() if one != one.lower() else new

    def _settle_suffixes(self, bounds: dict[str, str], taken: set[str]) -> None:
        """Chooses suffixes in order with all other parts of names. One without room between its neighbours,
        as srv24 in srv2, srv24 and srv4, counts as no suffix if its runs were met: these are renamed.
        Otherwise it loses its order with mixed parts, but not with words and suffixes.
        """
        met = self._met[Kind.SUFFIX]
        words = self._parts(Kind.WORD) | bounds
        others = self._parts(Kind.WORD, Kind.MIXED, Kind.DIGITS) | bounds
        found = in_between(sorted(met), others, SUFFIX_LETTERS, taken, self.hashed)
        by_runs = {one for one in met - found.keys() if self._has_runs(one)}
        left = met - found.keys() - by_runs
        taken = taken | set(found.values())
        found |= in_between(sorted(left), words | found, SUFFIX_LETTERS, taken, self.hashed)
        taken |= set(found.values())
        found |= elsewhere(sorted(left - found.keys()), SUFFIX_LETTERS, taken, self.hashed)
        found |= {one: self._renamed(Kind.MIXED, one, strict=True) for one in by_runs}
        self._new |= {(Kind.SUFFIX, one): new for one, new in found.items()}

    def _has_runs(self, part: str) -> bool:
        return all(kind is Kind.KEPT or (kind, run) in self._new for kind, run in _runs(part))

    def _parts(self, *kinds: Kind) -> dict[str, str]:
        """Returns parts of names and their new texts, without kept words whose order is lost."""
        now = {one: self._renamed(kind, one, strict=True) for kind in kinds for one in self._met[kind]}
        kept = {one for one in self._met[Kind.KEPT] if one.isalnum()} - now.keys()
        now |= {one: one for one in kept if one.isdigit()}
        order = sorted(now)
        for one in kept:
            at = bisect_left(order, one)
            if (not at or now[order[at - 1]] < one) and (at == len(order) or one < now[order[at]]):
                now[one] = one
        return now

    # -- taking a text apart -----------------------------------------------------------------------------

    def _tokens(self, text: str) -> Iterator[Token]:
        if text in self._known:
            yield Kind.KEPT, text
            return
        at = 0
        for found in SPECIAL.finditer(text):
            yield from self._chunks(text[at : found.start()])
            at = found.end()
            kind = _SPECIAL_KINDS[found.lastgroup or "time"]
            yield (Kind.KEPT if found[0] in self._known else kind), found[0]
        yield from self._chunks(text[at:])

    def _chunks(self, text: str) -> Iterator[Token]:
        """Splits a text; spaces mark a sentence. The core compares its new sentences with earlier ones."""
        at = 0
        is_sentence = " " in text
        for found in _CHUNK.finditer(text):
            yield Kind.KEPT, text[at : found.start()]
            at = found.end()
            if is_sentence and found[0] in self._prose:
                yield Kind.KEPT, found[0]
            else:
                yield from self._chunk(found[0])
        yield Kind.KEPT, text[at:]

    def _is_kept(self, text: str) -> bool:
        return text in self._known or _NUMBER.fullmatch(text) is not None

    def _chunk(self, chunk: str) -> Iterator[Token]:
        if self._is_kept(chunk):
            yield Kind.KEPT, chunk
            return
        for prefix in _PREFIXES:
            if chunk.startswith(prefix):
                yield Kind.KEPT, prefix
                chunk = chunk.removeprefix(prefix)
        for number, piece in enumerate(chunk.split("/")):
            if number:
                yield Kind.KEPT, "/"
            yield from self._piece(piece)

    def _piece(self, piece: str) -> Iterator[Token]:
        """Splits the text between two slashes: a name, or a domain, possibly with a known domain in it."""
        if self._is_kept(piece):
            yield Kind.KEPT, piece
            return
        labels = piece.split(".")
        at = 0
        while at < len(labels):
            if at:
                yield Kind.KEPT, "."
            last = min(len(labels), at + self._most_labels)
            end = next((k for k in range(last, at, -1) if ".".join(labels[at:k]) in self._known), at)
            if end > at:
                yield Kind.KEPT, ".".join(labels[at:end])
                at = end
            else:
                for part in _PARTS.findall(labels[at]):
                    yield from self._part(part)
                at += 1

    def _part(self, part: str) -> Iterator[Token]:
        if part in "-_":
            yield Kind.KEPT, part
        elif _SUFFIX.fullmatch(part) and not part.isdigit():
            yield Kind.SUFFIX, part
        elif len(runs := list(_runs(part))) == 1:
            yield runs[0]
        else:
            yield Kind.MIXED, part


def _runs(part: str) -> Iterator[Token]:
    for run in _RUNS.findall(part):
        if run.isascii() and run.isdigit():
            yield Kind.KEPT if len(run) <= _MAX_DIGITS else Kind.DIGITS, run
        elif run == "NV":  # links between devices, NV4 to NV18
            yield Kind.KEPT, run
        else:
            yield Kind.WORD, run


def _bounds(suffixes: Iterable[str]) -> dict[str, str]:
    """Returns bounds that keep each suffix's leading digits, followed by letters, in order with numbers."""
    leads = {one[: len(one) - len(one.lstrip(_DIGITS))] for one in suffixes}
    return {bound: bound for lead in leads for bound in (lead, f"{lead}:", f"{lead}{{")}


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "[") or '"' not in text:
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    return True


def _strings_of(text: str, nested: int = 0) -> Iterator[str]:
    """Yields the text, or the strings in it if it is JSON."""
    if nested < _MAX_NESTED and _is_json(text):
        for raw in _STRING.findall(text):
            yield from _strings_of(json.loads(raw, strict=False), nested + 1)
    else:
        yield text


def _as_cased(new: str, like: str) -> str:
    last = like[-1].isupper()
    if like.islower():
        return new
    return "".join(
        char.upper() if (like[at].isupper() if at < len(like) else last) else char
        for at, char in enumerate(new)
    )


def walk(value: Any, rename: Callable[[str], Any], is_amount: bool = False) -> Any:
    """Returns the value with every text renamed, except amounts and versions, which are numbers."""
    if isinstance(value, str):
        return value if is_amount and _AMOUNT.fullmatch(value) else rename(value)
    if isinstance(value, list):
        return [walk(one, rename, is_amount) for one in value]
    if isinstance(value, dict):
        return {
            rename(key) if isinstance(key, str) else key: walk(
                one, rename, key in _AMOUNTS or is_amount or key in _VERSIONS
            )
            for key, one in value.items()
        }
    return value
