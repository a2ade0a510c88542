"""A certificate made for the run is one that a client can be given to trust; wrong files are named."""

from __future__ import annotations

import socket
import ssl
import threading
from pathlib import Path

import pytest

from gangsched.certificates import Pair, self_signed, server_context, server_context_from_files
from gangsched.errors import ConfigError


@pytest.fixture(scope="module")
def pair() -> Pair:
    return self_signed("gangsched", hosts=["localhost", "127.0.0.1", "::1"])


def handshake(server: ssl.SSLContext, client: ssl.SSLContext, name: str) -> str:
    """The common name that the client was shown."""
    here, there = socket.socketpair()

    def serve() -> None:
        with server.wrap_socket(there, server_side=True):
            pass

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        with client.wrap_socket(here, server_hostname=name) as connection:
            shown = connection.getpeercert() or {}
    finally:
        thread.join(10)
    subject = dict(pairs[0] for pairs in shown["subject"])  # type: ignore[misc]
    return str(subject["commonName"])


@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
def test_a_client_that_is_given_the_certificate_trusts_the_server(pair: Pair, name: str) -> None:
    client = ssl.create_default_context(cadata=pair.certificate.decode())
    assert handshake(server_context(pair), client, name) == "gangsched"


def test_files_are_taken_as_well(pair: Pair, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    client = ssl.create_default_context(cafile=str(certificate))
    assert (
        handshake(server_context_from_files(str(certificate), str(key)), client, "localhost") == "gangsched"
    )


def test_what_is_wrong_with_files_is_reported_by_name(pair: Pair, tmp_path: Path) -> None:
    certificate, key = tmp_path / "tls.crt", tmp_path / "tls.key"
    certificate.write_bytes(pair.certificate)
    with pytest.raises(ConfigError, match=r"tls.key: cannot be read: No such file"):
        server_context_from_files(str(certificate), str(key))
    key.write_bytes(self_signed("other", hosts=["localhost"]).key)
    with pytest.raises(ConfigError, match=r"tls.crt: no certificate that goes with the key"):
        server_context_from_files(str(certificate), str(key))
