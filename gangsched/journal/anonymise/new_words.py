"""New words for old ones: in the same order, of the same length, and not already in use.

Lives here: the letters of a new word. Not here: what counts as a word (renaming, which calls this), and
finding room in the alphabet (ordered_names).
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from string import ascii_lowercase

from gangsched.journal.anonymise.ordered_names import CONSONANTS, Hashed, codes, in_between

_VOWELS = "aeiou"
_N_HASHED = 2
"""Least number of letters chosen by the hash alone."""
_SHORT = 4
"""Longest word that is too short for the letters of its place and of the hash."""


def new_words(words: set[str], anchors: set[str], taken: set[str], hashed: Hashed) -> dict[str, str]:
    """Returns a new word for each. anchors: words that stay; taken: words not to use.

    Short words keep their length if the whole order can be kept that way: there may be no room for them
    between the anchors, or for longer words between them.
    """
    for alphabets in ((CONSONANTS, ascii_lowercase), (CONSONANTS,), ()):
        new = _new_words(words, anchors, taken, alphabets, hashed)
        if sorted(new) == sorted(new, key=new.__getitem__):
            break
    return new


def _new_words(
    words: set[str], anchors: set[str], taken: set[str], alphabets: Iterable[str], hashed: Hashed
) -> dict[str, str]:
    """alphabets: for short words, tried in order."""
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
    """Makes a word that does not look like a suffix: it ends with a vowel."""
    n = max(len(word), len(code) + _N_HASHED)
    for attempt in range(100):
        rest = hashed(f"{attempt}:{word}" if attempt else word, n - len(code), CONSONANTS)
        last = hashed(f"{attempt}/{word}", 1, _VOWELS) if word.isascii() else "é"
        if (new := code + rest[:-1] + last) not in taken:
            break
    return new


def number_of(hashed: Hashed, text: str, below: int) -> int:
    """Returns a number below the bound for a text, by the keyed hash."""
    return int(hashed(text, 16, "0123456789abcdef"), 16) % below
