"""Limits on a list that is read page by page: a server may send continue tokens without end.

Lives here: which token the next request carries, and when to stop. Not here: requests and a page's content.
Used by all code that reads a list to its end: watches before they begin, commands, snapshots, plugins.
"""

from __future__ import annotations

from gangsched.errors import ApiError

# A page has 500 objects at most, so this is five million; no cluster has that many of one kind.
MAX_PAGES = 10_000
# Servers apply selectors before they fill a page, so a page followed by a token has objects.
MAX_EMPTY_PAGES = 100
# One page of a command's list: 500 objects of a quarter of a MiB each, where 15 KiB is a large pod.
MAX_PAGE_BYTES = 128 * 2**20
# All pages together: 150,000 pods of 14 KiB, the most that Kubernetes is made for. etcd holds at most 8 GiB
# of all kinds.
MAX_BYTES = 2 * 2**30


class Pages:
    """Follows the continue tokens of one list, within limits; `path` is for messages."""

    def __init__(
        self,
        path: str,
        *,
        max_pages: int = MAX_PAGES,
        max_empty: int = MAX_EMPTY_PAGES,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._path = path
        self._max_pages = max_pages
        self._max_empty = max_empty
        self._max_bytes = max_bytes
        self._token = ""
        self._n_pages = 0
        self._n_empty = 0
        self._n_bytes = 0

    def after(self, token: str, *, n_items: int, n_bytes: int) -> str:
        """Returns the token for the next page, "" after the last. `token`: the one in this page.

        Raises: ApiError, when the list would never end.
        """
        self._n_pages += 1
        self._n_bytes += n_bytes
        self._n_empty = 0 if n_items else self._n_empty + 1
        if self._n_bytes > self._max_bytes:
            self._stop(f"it is longer than {self._max_bytes // 2**20} MiB")
        if not token:
            return ""
        if token == self._token:
            self._stop("two pages in a row end with the same continue token")
        if self._n_empty >= self._max_empty:
            self._stop(f"{self._n_empty} pages in a row are empty, and each says that more follows")
        if self._n_pages >= self._max_pages:
            self._stop(f"after {self._n_pages} pages it still says that more follows")
        self._token = token
        return token

    def _stop(self, why: str) -> None:
        raise ApiError(f"the list of {self._path} does not end: {why}; is this address an API server?")
