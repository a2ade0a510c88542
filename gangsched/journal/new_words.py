"""New words for old ones: in their order, as long, and none that is something else already.

Lives here: which letters a word gets. Not here: what is a word (renaming, which calls this), and where in the
alphabet there is room (ordered_names).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from string import ascii_lowercase

from gangsched.journal.ordered_names import CONSONANTS, Hashed, codes, in_between

_VOWELS = "aeiou"
_N_HASHED = 2
"""Letters at least that are the hash's alone."""
_SHORT = 4
"""Letters at most of a word that would be longer by the letters of its place and of the hash."""


def new_words(words: set[str], anchors: set[str], taken: set[str], hashed: Hashed) -> dict[str, str]:
    """For each word another one. anchors: words that stay; taken: what none may be.

    Short ones keep their length if all keep their order so: there may be no room for them between those that
    stay, or for longer ones between them.
    """
    for alphabets in ((CONSONANTS, ascii_lowercase), (CONSONANTS,), ()):
        new = _new_words(words, anchors, taken, alphabets, hashed)
        if sorted(new) == sorted(new, key=new.__getitem__):
            break
    return new


def _new_words(
    words: set[str], anchors: set[str], taken: set[str], alphabets: Iterable[str], hashed: Hashed
) -> dict[str, str]:
    """alphabets: of short words, one tried after the other."""
    fixed = {one: one for one in anchors}
    for alphabet in alphabets:
        short = [one for one in words - fixed.keys() if len(one) <= _SHORT and one.isascii()]
        taken = taken | set(fixed.values())
        fixed |= in_between(short, fixed, alphabet, taken, hashed)
    longer = sorted(words - fixed.keys())
    code_of = codes(longer, fixed, partial(number_of, hashed))
    new = {one: text for one, text in fixed.items() if one in words}
    return new | {one: _longer(one, code_of[one], taken, hashed) for one in longer}


def _longer(word: str, code: str, taken: set[str], hashed: Hashed) -> str:
    """No suffix: it ends with a vowel."""
    n = max(len(word), len(code) + _N_HASHED)
    for attempt in range(100):
        rest = hashed(f"{attempt}:{word}" if attempt else word, n - len(code), CONSONANTS)
        last = hashed(f"{attempt}/{word}", 1, _VOWELS) if word.isascii() else "é"
        if (new := code + rest[:-1] + last) not in taken:
            break
    return new


def number_of(hashed: Hashed, text: str, below: int) -> int:
    """Of a text one below a bound, by the keyed hash."""
    return int(hashed(text, 16, "0123456789abcdef"), 16) % below
