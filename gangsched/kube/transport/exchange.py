"""One request with credentials over any connection: counts the answer, retries after a 401, reads a refusal.

Used by kube.transport.pool and kube.transport.stream, which bring the connection and its deadlines. Lanes
(kube.transport.lane) share only `refusal`: they count and retry by callbacks, because a waiting task for each
bind would cost more than the bind.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from gangsched.errors import ApiError
from gangsched.kube.access.credentials import Credentials
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
    """Send a request and return its answer; after a 401 send it once more, with new credentials.

    A 401 means that nothing was done, so a second try is safe. Raises: ApiError, for statuses from 300 on.
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
    """Returns the error for a status from 300 on; a 401 names the credentials that were not accepted."""
    error = api_error(status, retry_after, body)
    return credentials.not_accepted(error) if status == UNAUTHORIZED else error
