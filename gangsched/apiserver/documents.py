"""What the API says of itself: versions, health, discovery; everything that is served beside resources.

Lives here: which path is answered by what. Not here: the documents' content (discovery.py, openapi). Called
by the face, for paths at which there is no resource.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping

from gangsched import __version__
from gangsched.apiserver import responses
from gangsched.apiserver.discovery import Discovery
from gangsched.apiserver.requests import Request
from gangsched.apiserver.responses import Answer
from gangsched.apiserver.status import method_not_allowed

# The version whose behaviour is followed; the part behind + says that it is not that program.
KUBERNETES = "1.37.1"
_HEALTH = ("/healthz", "/livez", "/readyz")


def version() -> Mapping[str, str]:
    major, minor, _ = KUBERNETES.split(".")
    return {
        "major": major,
        "minor": minor,
        "emulationMajor": major,
        "emulationMinor": minor,
        "minCompatibilityMajor": major,
        "minCompatibilityMinor": minor,
        "gitVersion": f"v{KUBERNETES}+gangsched-{__version__}",
        "gitCommit": "",
        "gitTreeState": "",
        "buildDate": "",
        "goVersion": "",
        "compiler": platform.python_implementation(),
        "platform": f"{platform.system()}/{platform.machine()}".lower(),
    }


class Documents:
    """Answers GETs for what is not a resource."""

    def __init__(self, discovery: Discovery) -> None:
        self._discovery = discovery

    def handle(self, request: Request) -> Answer:
        """404 in plain text where there is nothing. Raises: StatusError."""
        path = request.path
        answer = self._find(path, request)
        if answer is None:
            return responses.NOT_FOUND
        if request.method not in ("GET", "HEAD"):
            raise method_not_allowed()
        return answer

    def _find(self, path: str, request: Request) -> Answer | None:
        root = path.split("/", 2)[1] if path.startswith("/") else ""
        if root in ("api", "apis"):
            document = self._discovery.answer(path, request.accept)
            if document is None:
                return None
            headers = {"Vary": "Accept"}
            if document.etag:
                headers |= {"ETag": document.etag, "Cache-Control": "public"}
                if request.if_none_match == document.etag:
                    return Answer(304, b"", document.content_type, headers)
            return Answer(200, document.body, document.content_type, headers)
        if path == "/version":
            return responses.document(version())
        if path in _HEALTH:
            said = f"[+]ping ok\n{path[1:]} check passed\n" if "verbose" in request.query else "ok"
            return responses.plain_text(200, said)
        if path == "/":
            return responses.document({"paths": self._paths()})
        return None

    def _paths(self) -> list[str]:
        groups = self._discovery.groups()
        below = [f"/apis/{group}/{each}" for group, versions in groups.items() for each in versions]
        roots = ["/api", "/api/v1", "/apis", "/version", *_HEALTH]
        return sorted([*roots, *(f"/apis/{group}" for group in groups), *below])
