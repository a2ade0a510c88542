"""What the API server means by refusals that share a code and a reason: its words alone tell them apart.

The only place where a text of others is read for what it means; each function names the source of the words.
Called by the edge, the core, the node agent and the pages. Our own reasons are values (core.why).
"""

from __future__ import annotations

import re

_NO_CLASS = re.compile(r"no PriorityClass with name (\S{1,253}) was found")


def says_namespace_goes(message: str) -> bool:
    """Whether the API server refuses to create something because the namespace is being deleted.

    Its code and reason are those of a missing right. Source: plugin/pkg/admission/namespace/lifecycle.
    """
    return "because it is being terminated" in message


def says_right_is_missing(message: str, verb: str) -> bool:
    """Whether a 403 is of RBAC, for this verb, and not of an admission plugin, policy or webhook.

    Source: apiserver/pkg/endpoints/handlers/responsewriters, forbiddenMessage.
    """
    return f"cannot {verb} resource" in message


def says_keys_are_reserved(message: str) -> bool:
    """Whether our own admission policy refuses: only the scheduler's service account may write these keys."""
    return "'gangsched-reserved-keys" in message


def says_quota_is_exceeded(message: str) -> bool:
    """Whether a ResourceQuota refuses the object. Source: apiserver/pkg/admission/plugin/resourcequota."""
    return "exceeded quota" in message


def says_budget_refuses(message: str) -> bool:
    """Whether a PodDisruptionBudget, or two of one pod, refuse an eviction.

    Source: pkg/registry/core/pod/storage/eviction.go.
    """
    return "disruption budget" in message or "PodDisruptionBudget" in message


def missing_class(message: str) -> str:
    """Returns the PriorityClass that does not exist; "": the message names none.

    Source: plugin/pkg/admission/priority.
    """
    found = _NO_CLASS.search(message)
    return "" if found is None else found[1]
