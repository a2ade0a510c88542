"""kubelet's unreadable answers: each is a failure that is reported, and the next call connects again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server
from h2.config import H2Configuration
from h2.connection import H2Connection
from h2.events import RequestReceived

from gangsched.agent import channels
from gangsched.agent.kubelet_api import podresources_pb2 as messages
from gangsched.agent.plugins.kubelet import Kubelet, KubeletError
from gangsched.agent.plugins.messages import given_by_kubelet
from gangsched.agent.plugins.settings import KubeletDocument


class Plain(CodecBase):
    """Bytes as they are."""

    __content_subtype__ = "proto"

    def encode(self, message: Any, message_type: Any) -> bytes:
        return bytes(message)

    def decode(self, data: bytes, message_type: Any) -> bytes:
        return data


class Lister:
    """Answers List with whatever it is told."""

    def __init__(self, answer: bytes) -> None:
        self.answer = answer

    async def list(self, stream: Any) -> None:
        await stream.recv_message()
        await stream.send_message(self.answer)

    def __mapping__(self) -> dict[str, Handler]:
        return {"/v1.PodResourcesLister/List": Handler(self.list, Cardinality.UNARY_UNARY, bytes, bytes)}


@asynccontextmanager
async def kubelet(directory: Path, lister: Lister) -> AsyncIterator[Kubelet]:
    path = str(directory / "kubelet.sock")
    server = Server([lister], codec=Plain())
    await server.start(path=path)
    asking = Kubelet(KubeletDocument(pod_resources=path, pods_api=""))
    try:
        yield asking
    finally:
        asking.close()
        server.close()
        await server.wait_closed()


@pytest.mark.parametrize(
    "garbage",
    [b"\xff" * 40, b"\x0a\xff\xff\xff\xff\x0f", b"[" * 5_000, b"\x0b" * 5_000, b"\x0a\x02\x0a\xff"],
)
async def test_an_unreadable_answer_is_reported_and_asked_for_again(tmp_path: Path, garbage: bytes) -> None:
    lister = Lister(garbage)
    async with kubelet(tmp_path, lister) as asking:
        with pytest.raises(KubeletError, match=r"kubelet\.sock: the answer cannot be read"):
            await asking.given()
        good = messages.ListPodResourcesResponse()
        good.pod_resources.add(name="p", namespace="d").containers.add(name="main")
        lister.answer = good.SerializeToString()
        assert list(await asking.given()) == [("d", "p")]


HEAD = ((":status", "200"), ("content-type", "application/grpc"))


@pytest.mark.parametrize(
    "headers",
    [
        HEAD[1:],
        (*HEAD, ("some-bin", "a")),
        (*HEAD, ("grpc-status", "3"), ("grpc-message", "x" * 50_000)),
        (*HEAD, ("grpc-status", "3"), ("grpc-message", "%1b[31m"), ("grpc-status-details-bin", "a")),
        (*HEAD, ("x", b"\xff\xfe")),
    ],
    ids=["no status", "no base64", "long", "no details", "no text"],
)
async def test_headers_that_are_none_are_reported_in_a_few_words(
    tmp_path: Path, headers: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """Written frame by frame: no library sends these."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = H2Connection(H2Configuration(client_side=False, validate_outbound_headers=False))
        connection.initiate_connection()
        while data := await reader.read(65536):
            for event in connection.receive_data(data):
                if isinstance(event, RequestReceived):
                    connection.send_headers(event.stream_id, list(headers), end_stream=True)
            writer.write(connection.data_to_send())
        writer.close()

    path = str(tmp_path / "kubelet.sock")
    server = await asyncio.start_unix_server(answer, path)
    asking = Kubelet(KubeletDocument(pod_resources=path, pods_api=""))
    with pytest.raises(KubeletError) as told:
        await asking.given()
    asking.close()
    server.close()
    assert str(told.value).isprintable()
    assert len(str(told.value)) < len(path) + 500
    assert not [record for record in caplog.records if record.exc_info]


async def test_an_answer_that_is_too_long_is_not_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(channels, "MAX_MESSAGE_BYTES", 1000)
    async with kubelet(tmp_path, Lister(b"x" * 1001)) as asking:
        with pytest.raises(KubeletError, match="a message of 1001 bytes, at most 1000"):
            await asking.given()


def test_devices_one_by_one_are_read_as_fast_as_together() -> None:
    """Each entry once copied all before it: 370 kB of them took three seconds of the agent's loop."""
    listed = messages.ListPodResourcesResponse()
    container = listed.pod_resources.add(name="p", namespace="d").containers.add(name="main")
    for k in range(100_000):
        container.devices.add(resource_name="example.com/x", device_ids=[f"d{k}", "", "y" * 64])
    assert len(given_by_kubelet(listed)["d", "p"]["main"]["example.com/x"]) == 100_000
