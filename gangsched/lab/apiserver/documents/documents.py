"""Documents about the API itself: versions, health, discovery; everything that is not a resource.

Lives here: the paths, and which document answers each. Not here: the documents' content (discovery.py,
openapi.py). Called by the HTTP face for paths without a resource.
"""

from __future__ import annotations

import platform
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

from gangsched import __version__
from gangsched.lab.apiserver.documents import openapi
from gangsched.lab.apiserver.documents.discovery import Discovery
from gangsched.lab.apiserver.documents.openapi import OpenApi
from gangsched.lab.apiserver.http import responses
from gangsched.lab.apiserver.http.requests import Request
from gangsched.lab.apiserver.http.responses import Answer
from gangsched.lab.apiserver.status import method_not_allowed, unknown_path

# The version whose behaviour this follows; the part after + marks it as another program.
KUBERNETES = "1.37.1"
_HEALTH = ("/healthz", "/livez", "/readyz")
# kubectl requests version 2 only in protobuf, and only for kinds that it has found nowhere else: an empty
# document (`swagger: "2.0"`) tells it that they are not here either.
_PROTOBUF_SCHEMA = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_EMPTY_SCHEMA = b"\n\x032.0"


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
    """Answers GETs of paths that are not resources."""

    def __init__(self, discovery: Discovery, openapi: OpenApi) -> None:
        self._discovery = discovery
        self._openapi = openapi

    def handle(self, request: Request) -> Answer:
        """Answers a request; 404 in plain text if there is nothing. Raises: StatusError."""
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
                if root == "api" or (path.split("/")[2:3] and path.split("/")[2] in self._discovery.groups()):
                    raise unknown_path()
                return None
            headers = {"Vary": "Accept"}
            if document.etag:
                headers |= {"ETag": document.etag, "Cache-Control": "public"}
                if request.if_none_match == document.etag:
                    return Answer(304, b"", document.content_type, headers)
            return Answer(200, document.body, document.content_type, headers)
        if root == "openapi":
            return self._openapi_document(path, request)
        if path == "/version":
            return responses.document(version())
        if path in _HEALTH:
            text = f"[+]ping ok\n{path[1:]} check passed\n" if "verbose" in request.query else "ok"
            return responses.plain_text(200, text)
        return None

    def _openapi_document(self, path: str, request: Request) -> Answer | None:
        if path == "/openapi/v2" and "proto-openapi" in request.accept:
            return Answer(200, _EMPTY_SCHEMA, _PROTOBUF_SCHEMA)
        document = self._openapi.answer(path)
        if document is None:
            return None
        headers = {"Vary": "Accept", "ETag": f'"{document.etag}"'}
        if request.first("hash") == document.etag:
            # kubectl caches it on disk: the document at this address never changes.
            a_year_on = format_datetime(datetime.now(UTC) + timedelta(days=365), usegmt=True)
            headers |= {"Cache-Control": "public, immutable", "Expires": a_year_on}
        if request.if_none_match == headers["ETag"]:
            return Answer(304, b"", openapi.JSON, headers)
        return Answer(200, document.body, openapi.JSON, headers)
