"""Text from outside, made safe to print on a terminal, in a log and in a message. Called by all rooms."""

from __future__ import annotations


def one_line(text: str) -> str:
    r"""The text with line feeds, a terminal's control characters, marks that turn the direction of writing
    and halves of characters as `\x0a`."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else f"\\x{ord(c):02x}" for c in text)
