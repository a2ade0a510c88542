"""kubelet's answers that are none: each is a failure that is told, and the next call connects anew."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from grpclib.const import Cardinality, Handler
from grpclib.encoding.base import CodecBase
from grpclib.server import Server

from gangsched.agent.kubelet import Kubelet, KubeletError
from gangsched.agent.kubelet_api import podresources_pb2 as messages
from gangsched.agent.plugin_settings import KubeletDocument


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
async def test_an_answer_that_is_none_is_reported_and_asked_again(tmp_path: Path, garbage: bytes) -> None:
    lister = Lister(garbage)
    async with kubelet(tmp_path, lister) as asking:
        with pytest.raises(KubeletError, match=r"kubelet\.sock: the answer cannot be read"):
            await asking.given()
        good = messages.ListPodResourcesResponse()
        good.pod_resources.add(name="p", namespace="d").containers.add(name="main")
        lister.answer = good.SerializeToString()
        assert list(await asking.given()) == [("d", "p")]
