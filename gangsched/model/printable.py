"""Text for people: from outside, made safe to print on a terminal, in a log and in a message; and counts of
things. Called by all rooms."""

from __future__ import annotations


def several(n: int, noun: str, plural: str = "") -> str:
    """1 gang, 2 gangs; plural: of a noun that takes more than an s."""
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def sentence(text: str) -> str:
    """The text with a full stop, where it does not end as a sentence already."""
    return text if text.endswith((".", "?")) else f"{text}."


def in_words(error: BaseException) -> str:
    """Its class and its text; the class alone of an exception whose text cannot be had."""
    try:
        return f"{type(error).__name__}: {error}"
    except Exception:
        return f"{type(error).__name__}, whose message cannot be read"


def one_line(text: str) -> str:
    r"""The text with line feeds, a terminal's control characters, marks that turn the direction of writing
    and halves of characters as `\x0a`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
