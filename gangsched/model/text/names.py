"""Names with Kubernetes' syntax rules: label keys and values, qualified names, domains.

Lives here: whether a text is valid, and the rule. Not here: the embedded API server's literal error messages
(api_rules.names). Called by configuration and by plugins for their Args.
Source: k8s.io/apimachinery `pkg/util/validation`.
"""

from __future__ import annotations

import re

_NAME = r"[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_LABEL = r"[a-z0-9](?:[-a-z0-9]*[a-z0-9])?"
_QUALIFIED = re.compile(rf"(?:(?=[^/]{{1,253}}/){_LABEL}(?:\.{_LABEL})*/)?{_NAME}")
_SUBDOMAIN = re.compile(rf"{_LABEL}(?:\.{_LABEL})*")
_VALUE = re.compile(rf"(?:{_NAME})?")


def is_qualified_name(text: str) -> bool:
    """Whether it may be a label key or resource name: at most 63 characters after an optional domain/."""
    return _QUALIFIED.fullmatch(text) is not None


def is_label_value(text: str) -> bool:
    """Whether it is empty, or at most 63 letters, digits, `-`, `_`, `.`, alphanumeric at both ends."""
    return _VALUE.fullmatch(text) is not None


def is_subdomain(text: str) -> bool:
    """Whether it may name most objects: at most 253 lower-case letters, digits, `-` and `.`."""
    return len(text) <= 253 and _SUBDOMAIN.fullmatch(text) is not None
