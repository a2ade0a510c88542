"""The oracle's tests are skipped where it has not been built."""

from __future__ import annotations

import os

import pytest

from gangsched.errors import ConfigError
from gangsched.lab.controlplane import assets
from gangsched.lab.controlplane.build import REQUIRE_VARIABLE


@pytest.fixture
def oracle() -> None:
    """Skips the test where there is no oracle, or fails it where everything must run."""
    try:
        assets.find(module=assets.DRA)
    except ConfigError as error:
        if os.environ.get(REQUIRE_VARIABLE) == "1":
            pytest.fail(f"{REQUIRE_VARIABLE}=1, but: {error}", pytrace=False)
        pytest.skip(f"no allocator of Kubernetes to compare with: {error}")
