"""Text for people: makes outside text safe to print on a terminal, in a log and in a message, words counts of
things, and keeps the names of one namespace's objects from the readers of another. Called by all rooms.

A text that names objects of any namespace marks them (`marked`); where it is shown the marks are rendered,
`in_full` for administrators, `seen_from` a namespace for its tenants. They are characters that `one_line`
escapes, so that a text in which they were not rendered shows it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import islice

# kube-apiserver refuses longer event notes; conditions have the same limit, for readability.
MAX_MESSAGE = 1024
_OPEN, _NEXT, _CLOSE = "\ue000", "\ue001", "\ue002"
# A mark that was cut off with its text ends where the text does.
_MARK = re.compile(f"{_OPEN}([^{_OPEN}{_CLOSE}]*)(?:{_CLOSE}|$)")
_MAX_MARKED = 64
_MAX_NAMED = 4
_OTHERS = {
    "queue": ("another queue", "{} other queues"),
    "user": ("an operator", "{} operators"),
}
"""What tenants read in place of names that are in no namespace."""


def marked(kind: str, names: Iterable[str], *, lead: str = "") -> str:
    """Marks names as "namespace/name"; one without a namespace is for administrators alone.

    kind: in the singular; a queue and a user are in no namespace. lead: what goes before the names in full.
    """
    kept = [one_line(name) for name in islice(names, _MAX_MARKED + 1)]
    return f"{_OPEN}{_NEXT.join((kind, lead, *kept))}{_CLOSE}"


def in_full(text: str) -> str:
    """Renders marked names, as administrators read them."""
    return _MARK.sub(lambda found: _full(*_parts(found[1])), text) if _OPEN in text else text


def seen_from(namespace: str, text: str) -> str:
    """Renders marked names for the readers of a namespace; "": of none. Others' objects are only counted."""
    if _OPEN not in text:
        return text
    return _MARK.sub(lambda found: _counted(namespace, *_parts(found[1])), text)


def clean(text: str) -> str:
    """One line without control characters (names and annotations are untrusted), cut to size, with all names:
    for administrators."""
    return _cut(one_line(in_full(text)))


def clean_for(namespace: str, text: str) -> str:
    """As clean, for whoever may read the objects of this namespace: with no names of others' objects."""
    return _cut(one_line(seen_from(namespace, text)))


def _cut(shown: str) -> str:
    return shown if len(shown) <= MAX_MESSAGE else shown[: MAX_MESSAGE - 1] + "…"


def _parts(mark: str) -> tuple[str, str, list[str]]:
    kind, lead, *names = mark.split(_NEXT) if mark.count(_NEXT) else (mark, "")
    return kind, lead, names


def _full(kind: str, lead: str, names: list[str]) -> str:
    return lead + ", ".join(names[:_MAX_NAMED]) + (", …" if len(names) > _MAX_NAMED else "")


def _counted(namespace: str, kind: str, lead: str, names: list[str]) -> str:
    own = [name for name in names if namespace and name.startswith(f"{namespace}/")]
    n = len(names) - len(own)
    if not n:
        return _full(kind, lead, names)
    one, many = _OTHERS.get(kind, (f"a {kind} of another namespace", f"{{}} {kind}s of other namespaces"))
    others = one if n == 1 else many.format(f"more than {_MAX_MARKED}" if n > _MAX_MARKED else n)
    return f"{_full(kind, lead, own)} and {others}" if own else others


def several(n: int, noun: str, plural: str = "") -> str:
    """Formats a count: 1 gang, 2 gangs. plural: for a noun that takes more than an s."""
    return f"{n:,} {noun if n == 1 else plural or f'{noun}s'}"


def sentence(text: str) -> str:
    """Adds a full stop if the text does not already end as a sentence."""
    return text if text.endswith((".", "?")) else f"{text}."


def shown(value: str) -> str:
    """Returns a value that may be empty, as a label's, so that a reader sees where it is."""
    return value or '""'


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
