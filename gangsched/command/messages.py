"""What a command says beside its output: one line on stderr, after the program's name. Called by commands."""

from __future__ import annotations

import sys

from gangsched.model.text.printable import one_line


def tell(text: str) -> None:
    """Says why the command ends, or what is missing of its output."""
    print(f"gangsched: {one_line(text)}", file=sys.stderr)


def tell_note(text: str) -> None:
    """Says what a reader of the output should know."""
    tell(f"note: {text}")
