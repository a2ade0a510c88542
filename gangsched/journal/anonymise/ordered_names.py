"""New words in the order of the old ones: finds the place in the alphabet where each begins.

Lives here: places in the alphabet, as numbers. Not here: taking texts apart (renaming, which calls it).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import groupby

CONSONANTS = "bcdfghjklmnpqrstvwxz"
SUFFIX_LETTERS = "2456789" + CONSONANTS
"""The letters of suffixes that Kubernetes makes, in order."""

Number = Callable[[str, int], int]
"""Returns a number below the bound for a text, by the keyed hash."""
Hashed = Callable[[str, int, str], str]
"""Returns n letters of an alphabet for a text, by the keyed hash."""
# Sorts after all texts.
_LAST = "\U0010ffff"
_MAX_RANKED = 30
"""Number of letters chosen by the order; the hash chooses any further ones."""


def in_base(number: int, digits: str, n: int) -> str:
    found = ""
    for _ in range(n):
        number, at = divmod(number, len(digits))
        found = digits[at] + found
    return found


def place(text: str, alphabet: str, n_letters: int) -> int:
    """Returns how many words of n_letters letters of the alphabet sort before a text."""
    found = 0
    for at in range(n_letters):
        found *= len(alphabet)
        if at < len(text):
            found += sum(one < text[at] for one in alphabet)
            if text[at] not in alphabet:
                text = text[:at]  # treat the rest as past its end
    return found + (len(text) > n_letters)


def codes(words: list[str], anchors: Mapping[str, str], number: Number) -> dict[str, str]:
    """Returns each word's new first letters, in the order of the words and, if there is room, in order with
    `anchors`: other words and their new words, also in order.
    """
    n_letters = 3
    while 20 * len(words) + 200 > 20**n_letters:
        n_letters += 1
    runs: list[tuple[int, int, list[str]]] = []
    low, taken = 0, 0
    for anchor in [*sorted(anchors), ""]:
        upto = bisect_left(words, anchor) if anchor else len(words)
        high = place(anchors[anchor][:n_letters], CONSONANTS, n_letters) if anchor else 20**n_letters
        if high - low > upto - taken:  # else there is no room: the order with this anchor is lost
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
            found[word] = in_base(low + step * at + number(word, step), CONSONANTS, n_letters)
    return found


def in_between(
    texts: Sequence[str], others: Mapping[str, str], alphabet: str, taken: set[str], hashed: Hashed
) -> dict[str, str]:
    """Returns for each text a new one of this alphabet, of equal length, keeping the order among the texts
    and `others`: other texts and their new texts, also in order. Leaves out texts without room there. taken:
    texts not to use.
    """
    fixed = sorted(others)
    found: dict[str, str] = {}
    for at, run in groupby(sorted(texts), key=lambda one: bisect_left(fixed, one)):
        low = others[fixed[at - 1]] if at else ""
        high = others[fixed[at]] if at < len(fixed) else _LAST
        found |= _between(list(run), low, high, alphabet, taken, hashed)
    return found


def _between(
    run: list[str], low: str, high: str, alphabet: str, taken: set[str], hashed: Hashed
) -> dict[str, str]:
    """Returns new texts in order, at random distances."""
    n = min(max(map(len, run)), _MAX_RANKED)
    first = place(low, alphabet, n)
    step = max((place(high, alphabet, n) - first) // (len(run) + 1), 1)
    found: dict[str, str] = {}
    before = low
    for at, one in enumerate(run):
        for attempt in range(100):
            chance = int(hashed(f"{attempt}:{one}", 32, "0123456789abcdef"), 16) % step
            new = in_base(first + step * at + step // 2 + chance, alphabet, n)[: len(one)]
            new += hashed(one, len(one) - len(new), alphabet)
            if new not in taken and before < new < high:
                found[one] = before = new
                break
    return found


def elsewhere(texts: Sequence[str], alphabet: str, taken: set[str], hashed: Hashed) -> dict[str, str]:
    """Returns for each text a new one of this alphabet, of equal length, in no order."""
    found: dict[str, str] = {}
    taken = set(taken)
    for one in texts:
        tries = (hashed(f"{attempt}:{one}", len(one), alphabet) for attempt in range(100))
        found[one] = new = next((each for each in tries if each not in taken), one)
        taken.add(new)
    return found
