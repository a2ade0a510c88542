"""What tests of the pages share."""

from __future__ import annotations

import pytest

from gangsched.certificates import Pair, self_signed


@pytest.fixture(scope="session")
def pair() -> Pair:
    """The certificate that the pages are served with."""
    return self_signed("gangsched", hosts=["127.0.0.1"])
