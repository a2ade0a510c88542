"""One request with credentials, whichever connection it goes over: its count, its second try, its refusal.

Used by kube.transport.pool and kube.transport.stream, which bring the connection and its deadlines. Of lanes
(kube.transport.lane) only the refusal is here: they count and try again by callbacks, because a task waiting
for each bind would cost more than the bind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gangsched.errors import ApiError
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
    raise refusal(credentials, answer.status, answer.retry_after, answer.body)


def refusal(credentials: Credentials, status: int, retry_after: str | None, body: bytes) -> ApiError:
    """What a status from 300 on means; a 401 tells which credentials were not accepted."""
    error = api_error(status, retry_after, body)
    return credentials.not_accepted(error) if status == UNAUTHORIZED else error
