"""Text for people: makes outside text safe to print on a terminal, in a log and in a message, and words
counts of things. Called by all rooms.
"""

from __future__ import annotations


def several(n: int, noun: str, plural: str = "") -> str:
    """Formats a count: 1 gang, 2 gangs. plural: for a noun that takes more than an s."""
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def sentence(text: str) -> str:
    """Adds a full stop if the text does not already end as a sentence."""
    return text if text.endswith((".", "?")) else f"{text}."


def in_words(error: BaseException) -> str:
    """Returns the exception's class and text; only the class if its text cannot be read."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be read"


def one_line(text: str) -> str:
    r"""Escapes, as in `\x0a`, line feeds, a terminal's control characters, marks that change the direction of
    writing, and lone surrogates."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
