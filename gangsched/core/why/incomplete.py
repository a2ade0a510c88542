"""Reasons why a gang is not complete: what is to define it, and the members that are missing."""

from __future__ import annotations

from gangsched.core.why import Because


class DefinitionMissing(Because, frozen=True):
    """A gang's object does not exist, or nothing else defines it. missing: in words."""

    gang: str
    missing: str

    def __str__(self) -> str:
        return f"gang {self.gang} waits for {self.missing}"


class MembersMissing(Because, frozen=True):
    """A gang has been incomplete for a while. roles: which lack members, in words; more: what else is known
    of why, in words."""

    gang: str
    n_existing: int
    n_needed: int
    n_gated: int
    roles: str
    more: str

    def __str__(self) -> str:
        text = f"gang {self.gang} waits for members: {self.n_existing} of {self.n_needed} exist"
        gated = f", {self.n_gated} more are gated" if self.n_gated else ""
        return f"{text}{gated}{self.roles}{self.more}"
