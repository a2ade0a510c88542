"""Renaming: every word of a text replaced, the same one each time, in the order in which they were.

A text is taken apart where names are put together (`/`, `.`, `-`, `,`, JSON), so that what the core takes
apart or puts together is renamed alike. Words that the program itself knows stay, as do times and numbers
with their units; every other word becomes letters that its place in the alphabet and a keyed hash
(HMAC-SHA256) choose. Order stays, since ties are broken by names: that takes two passes, one that meets all
words and one that replaces them. So do case, length (above the shortest that keeps words apart), and whether
a part of a name looks like the suffix that Kubernetes makes. UUIDs and IP addresses become others.

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
from itertools import groupby
from typing import Any

import msgspec

from gangsched.errors import InvariantError

_CONSONANTS = "bcdfghjklmnpqrstvwxz"
_VOWELS = "aeiou"
# Shorter numbers are ordinals, sizes and times; longer ones in a name are somebody's number.
_MAX_DIGITS = 7
_N_HASHED = 2
"""Letters at least that are the hash's alone."""
_MAX_NESTED = 6
"""JSON in a string of JSON and so on."""
_RANKED_DIGITS = 30

_CLOCK = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}[T ][0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?(?:Z|[+-][0-9]{2}:[0-9]{2})?"
)
_UUID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
_DIGEST = r"(?=[a-f]*[0-9])(?=[0-9]*[a-f])[0-9a-f]{12,}"
_SPECIAL = re.compile(
    rf"(?P<time>{_CLOCK})"
    rf"|(?<![0-9A-Za-z])(?P<hex>{_UUID}|{_UUID.replace('a-f', 'A-F')}|{_DIGEST})(?![0-9A-Za-z])"
    r"|(?<![0-9A-Za-z.])(?P<ip>[0-9]{1,3}(?:\.[0-9]{1,3}){3})(?![0-9A-Za-z.])"
)
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
"""As gangsched.core.queueing.walltimes knows them."""
_PARTS = re.compile(r"[-_]|[^-_]+")
_RUNS = re.compile(r"[0-9]+|[^0-9]+")
_PLAIN = re.compile(r"[^0-9]+[0-9]*|[0-9]+[^0-9]+")
_STRING = re.compile(r'"(?:[^"\\]|\\.)*"')


# Whose values are amounts, however long.
_AMOUNTS = frozenset(("requests", "limits", "allocatable", "capacity", "overhead"))
_AMOUNT = re.compile(r"[+-]?[0-9]{1,30}(?:\.[0-9]{1,30})?(?:[eE][+-]?[0-9]{1,3}|[A-Za-z]{1,2})?")
_VERSIONS = frozenset(("resourceVersion", "resource_version"))


class Kind(Enum):
    KEPT = "kept"
    WORD = "word"
    SUFFIX = "suffix"
    DIGITS = "digits"
    HEX = "hex"
    IP = "ip"


Token = tuple[Kind, str]


class Renaming:
    """The first pass is `meet`, for every text; after `settle` a call replaces."""

    def __init__(self, key: bytes, known: Iterable[str], prose: Iterable[str] = ()) -> None:
        """known: words that stay; prose: in sentences these too."""
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

    def meet(self, text: str) -> None:
        if text in self._texts:
            return
        self._texts.add(text)
        for strings in _strings_of(text):
            if strings is not text:
                self.meet(strings)
        if not _is_json(text):
            for kind, token in self._tokens(text):
                self._met[kind].add(token)

    def meet_state(self, text: str) -> str:
        """The same for a text of which nobody knows the place; returns it as it is. One that is a number is
        an amount or a version there."""
        if not _BARE.fullmatch(text):
            self.meet(text)
        return text

    def settle(self) -> None:
        """Every word has been met."""
        self._texts.clear()
        met = self._met
        words = {one.lower() for one in met[Kind.WORD] | met[Kind.SUFFIX]}
        anchors = {run.lower() for one in met[Kind.KEPT] for run in re.findall(r"[A-Za-z]{2,}", one)}
        taken = words | anchors | {one.lower() for one in self._known}
        codes = _codes(sorted(words), sorted(anchors - words), self._number)
        for kind in (Kind.WORD, Kind.SUFFIX):
            for one in sorted({one.lower() for one in met[kind]}):
                self._new[kind, one] = self._word(kind, one, codes[one], taken)
        by_length = sorted(met[Kind.DIGITS], key=lambda one: (len(one), one))
        for n, group in groupby(by_length, key=len):
            self._spread(Kind.DIGITS, list(group), 10, min(n, _RANKED_DIGITS), n)
        bare = sorted(met[Kind.HEX], key=lambda one: one.lower())
        self._spread(Kind.HEX, bare, 16, 8, 0)
        for at, one in enumerate(sorted(met[Kind.IP])):
            self._new[Kind.IP, one] = f"198.{18 + (at >> 16) % 2}.{at >> 8 & 255}.{at & 255}"

    def __call__(self, text: str) -> str:
        """Raises: InvariantError (it was not met: nothing goes out as it is)."""
        return self._replaced(text)

    def of_answer(self, text: str) -> str:
        """The same for what the core answered, whose own words were never met."""
        return self._answered(text)

    def hashed(self, text: str, n: int, alphabet: str = "0123456789abcdef") -> str:
        """So many letters that this key and the text make."""
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
        is_word = kind in (Kind.WORD, Kind.SUFFIX)
        new = self._new.get((kind, token.lower() if is_word else token))
        if new is not None:
            return _as_cased(new, token) if is_word else new
        if strict and kind is not Kind.DIGITS:  # an amount in a state is no name, and was not met
            raise InvariantError("a text that is to be renamed was not met before")
        return token

    # -- the table ---------------------------------------------------------------------------------------

    def _number(self, text: str, below: int) -> int:
        return int(self.hashed(text, 16), 16) % below

    def _word(self, kind: Kind, word: str, code: str, taken: set[str]) -> str:
        n = max(len(word), len(code) + _N_HASHED)
        for attempt in range(100):
            rest = self.hashed(f"{attempt}:{word}" if attempt else word, n - len(code), _CONSONANTS)
            if kind is Kind.WORD:
                last = self.hashed(f"{attempt}/{word}", 1, _VOWELS) if word.isascii() else "é"
                rest = rest[:-1] + last
            if (new := code + rest) not in taken:
                break
        return new

    def _spread(self, kind: Kind, ordered: list[str], base: int, n_ranked: int, n: int) -> None:
        """In order, apart by chance. n: digits of each, 0: as many as the one that is replaced."""
        low = base ** (n_ranked - 1)
        step = max((base - 1) * low // (len(ordered) + 1), 1)
        for at, one in enumerate(ordered):
            ranked = low + step * at + self._number(one, step)
            digits = "0123456789abcdef"[:base]
            text = _in_base(ranked, digits, n_ranked)
            n_digits = n or sum(char != "-" for char in one)
            left = iter(text + self.hashed(one, max(n_digits - n_ranked, 0), digits))
            new = "".join(char if char == "-" else next(left) for char in one)
            self._new[kind, one] = new.upper() if one != one.lower() else new

    # -- taking a text apart -----------------------------------------------------------------------------

    def _tokens(self, text: str) -> Iterator[Token]:
        if text in self._known:
            yield Kind.KEPT, text
            return
        at = 0
        for found in _SPECIAL.finditer(text):
            yield from self._chunks(text[at : found.start()])
            at = found.end()
            kind = {"time": Kind.KEPT, "hex": Kind.HEX, "ip": Kind.IP}[found.lastgroup or "time"]
            yield (Kind.KEPT if found[0] in self._known else kind), found[0]
        yield from self._chunks(text[at:])

    def _chunks(self, text: str) -> Iterator[Token]:
        """A sentence is what has spaces: the core compares those that it makes with those it made."""
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
        """Between two slashes: a name, or a domain, of which a known one may be a part."""
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
        is_suffix = _SUFFIX.fullmatch(part) is not None
        if is_suffix and not (part.isalpha() or part.isdigit() or _PLAIN.fullmatch(part)):
            yield Kind.SUFFIX, part
            return
        for run in _RUNS.findall(part):
            if run in "-_" or (run.isascii() and run.isdigit() and len(run) <= _MAX_DIGITS):
                yield Kind.KEPT, run
            elif run.isascii() and run.isdigit():
                yield Kind.DIGITS, run
            elif run == "NV":  # links between devices, NV4 to NV18
                yield Kind.KEPT, run
            else:
                yield Kind.SUFFIX if is_suffix else Kind.WORD, run


def _is_json(text: str) -> bool:
    if text[:1] not in ("{", "[") or '"' not in text:
        return False
    try:
        msgspec.json.decode(text)
    except (msgspec.MsgspecError, RecursionError, UnicodeError):
        return False
    return True


def _strings_of(text: str, nested: int = 0) -> Iterator[str]:
    """It, or the strings of the JSON that it is."""
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


def _in_base(number: int, digits: str, n: int) -> str:
    found = ""
    for _ in range(n):
        number, at = divmod(number, len(digits))
        found = digits[at] + found
    return found


def _codes(words: list[str], anchors: list[str], number: Callable[[str, int], int]) -> dict[str, str]:
    """Letters that each begins with now, in the order of the words, and where there is room in their order
    with `anchors`, which stay as they are."""
    n_letters = 3
    while 20 * len(words) + 200 > 20**n_letters:
        n_letters += 1
    runs: list[tuple[int, int, list[str]]] = []
    low, taken = 0, 0
    for anchor in [*anchors, ""]:
        upto = bisect_left(words, anchor) if anchor else len(words)
        high = _place(anchor, n_letters) if anchor else 20**n_letters
        if high - low > upto - taken:  # else there is no room: order with this one is lost
            runs.append((low, high, words[taken:upto]))
            low, taken = high + 1, upto
    while taken < len(words) or not runs:  # no room at the end
        low, _, before = runs.pop() if runs else (0, 0, [])
        if len(words) - taken + len(before) < 20**n_letters - low:
            runs.append((low, 20**n_letters, words[taken - len(before) :]))
            break
        taken -= len(before)
    found: dict[str, str] = {}
    for low, high, run in runs:
        step = max((high - low) // (len(run) + 1), 1)
        for at, word in enumerate(run):
            found[word] = _in_base(low + step * at + number(word, step), _CONSONANTS, n_letters)
    return found


def _place(word: str, n_letters: int) -> int:
    """How many codes come before it."""
    place = 0
    for at in range(n_letters):
        char = word[at] if at < len(word) else ""
        place += sum(one < char for one in _CONSONANTS) * 20 ** (n_letters - 1 - at)
        if char not in _CONSONANTS or not char:
            break
    return place


def walk(value: Any, rename: Callable[[str], Any], is_amount: bool = False) -> Any:
    """The same with every text renamed, but for amounts and versions, which are numbers."""
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
