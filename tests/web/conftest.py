"""What tests of the pages share."""

from __future__ import annotations

from pathlib import Path

import pytest

from gangsched.certificates import Pair, self_signed


@pytest.fixture(scope="session")
def pair() -> Pair:
    """The certificate that the pages are served with."""
    return self_signed("gangsched", hosts=["127.0.0.1"])


@pytest.fixture
def without_kubeconfig(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For commands that ask the server they are told, whatever the machine's user has."""
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
