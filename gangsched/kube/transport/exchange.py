"""One request with credentials, whichever connection it goes over: its count, its second try, its refusal.

Used by kube.transport.pool and kube.transport.stream, which bring the connection and its deadlines. Not here:
lanes (kube.transport.lane), which answer by callbacks so that no task waits for a bind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gangsched.kube.credentials import Credentials
from gangsched.kube.reach import UNAUTHORIZED
from gangsched.kube.status import api_error
from gangsched.kube.tally import SILENCE
from gangsched.kube.transport.http1 import Answer, Frame, Verb


async def exchange(
    credentials: Credentials,
    verb: Verb,
    target: str,
    body: bytes,
    send: Callable[[bytes], Awaitable[Answer]],
) -> Answer:
    """The answer to a request that `send` puts on a connection; once more with new credentials after a 401.

    A 401 comes before anything is done, so a second try is safe. Raises: ApiError, for statuses from 300 on.
    """
    for is_last in (False, True):
        await credentials.headers()
        version, authorization = credentials.version, credentials.authorization
        frame = Frame(verb, credentials.server, authorization=authorization)
        status = SILENCE
        try:
            answer = await send(frame.request(target, body))
            status = answer.status
        finally:
            credentials.answers.count(verb.method, status)
        if status < 300:
            return answer
        if status != UNAUTHORIZED or is_last or not await credentials.refresh(refused=version):
            break
    error = api_error(answer.status, answer.retry_after, answer.body)
    raise credentials.not_accepted(error) if status == UNAUTHORIZED else error
