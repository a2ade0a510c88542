"""After a measurement in this process, pytest's own objects are kept out of garbage collections again."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def refrozen() -> Iterator[None]:
    """as_in_a_scheduler thaws all at its end. Freezing what is frozen costs nothing."""
    yield
    gc.freeze()
