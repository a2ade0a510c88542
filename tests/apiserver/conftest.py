"""The API server in memory, for what asks its handlers."""

from __future__ import annotations

import pytest

from tests.apiserver.api import Api


@pytest.fixture
def api() -> Api:
    return Api()
