"""The service behind the pages: certificates that are renewed or wrong, and a port that is taken."""

from __future__ import annotations

import asyncio
import ssl
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import anyio
import pytest

from gangsched.certificates import Pair, self_signed
from gangsched.errors import ConfigError
from gangsched.web.listening import WebSettings
from gangsched.web.metrics.measures import Measures
from gangsched.web.serving import service
from gangsched.web.serving.service import Web
from tests.kube.scripted import within

# Nothing of a scheduler is looked at by these tests.
NOTHING: Any = SimpleNamespace(inbox=None)


def write(directory: Path, pair: Pair) -> WebSettings:
    certificate, key = directory / "tls.crt", directory / "tls.key"
    certificate.write_bytes(pair.certificate)
    key.write_bytes(pair.key)
    return WebSettings(0, "127.0.0.1", str(certificate), str(key))


async def shown(tls: ssl.SSLContext) -> bytes:
    """The certificate that a new connection is shown."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0, ssl=tls)
    client = ssl.create_default_context()
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    async with server:
        _, writer = await asyncio.open_connection(*server.sockets[0].getsockname(), ssl=client)
        found = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
    return bytes(found)


async def test_a_certificate_that_is_renewed_on_disk_is_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "_CERTIFICATES_S", 0.01)
    first, second = (self_signed("gangsched", hosts=["localhost"]) for _ in range(2))
    web = Web(write(tmp_path, first), Measures(), NOTHING)
    assert web._tls is not None
    with within():
        async with anyio.create_task_group() as group:
            group.start_soon(web._follow_certificates)
            (tmp_path / "tls.crt").write_bytes(second.certificate)  # both are not replaced at once
            await anyio.sleep(0.05)
            assert await shown(web._tls) == ssl.PEM_cert_to_DER_cert(first.certificate.decode())
            write(tmp_path, second)
            while await shown(web._tls) != ssl.PEM_cert_to_DER_cert(second.certificate.decode()):
                await anyio.sleep(0.01)
            group.cancel_scope.cancel()


def test_a_wrong_certificate_is_reported_at_once(tmp_path: Path) -> None:
    settings = write(tmp_path, Pair(b"no certificate", b"no key"))
    with pytest.raises(ConfigError, match=r"tls.crt: no certificate that goes with the key"):
        Web(settings, Measures(), NOTHING)


def test_two_on_one_port() -> None:
    first = Web(WebSettings(0, "127.0.0.1"), Measures(), NOTHING)
    with pytest.raises(ConfigError, match="--secure-port: cannot listen"):
        Web(WebSettings(first.port, "127.0.0.1"), Measures(), NOTHING)
