"""Reviews of tokens and access. Every access is allowed: requests are not authorized here.

Lives here: the resources that answer a POST and store nothing.
Source: pkg/registry/{authorization,authentication}, pkg/apis/authorization/validation of Kubernetes 1.37.
"""

from __future__ import annotations

from gangsched.api_rules.status import FieldProblem, StatusError, bad_request, invalid_value
from gangsched.lab.apiserver.status import invalid
from gangsched.lab.apiserver.strategy import Context, Object, Strategy

_GROUP = "authorization.k8s.io"
_EXACTLY_ONE = "exactly one of nonResourceAttributes or resourceAttributes must be specified"
_OPEN_PATHS = ["/healthz", "/livez", "/readyz", "/version", "/version/"]


def _answered(body: Object, context: Context, status: Object) -> Object:
    resource = context.resource
    metadata = {"namespace": context.namespace} if resource.namespaced else {}
    return {
        "kind": resource.kind,
        "apiVersion": resource.api_version(context.version),
        "metadata": {**(body.get("metadata") or {}), **metadata},
        "spec": body.get("spec") or {},
        "status": status,
    }


def _refused(problem: FieldProblem) -> StatusError:
    # The real server states neither the kind nor a name here.
    return invalid("", "", [problem], group=_GROUP)


class AccessReviewStrategy(Strategy):
    """SubjectAccessReviews, of the sender or another user: always allowed."""

    def review(self, body: Object, context: Context) -> Object:
        spec = body.get("spec") or {}
        of_others = not context.resource.plural.startswith("self")
        if of_others and not spec.get("user") and not spec.get("groups"):
            raise _refused(invalid_value("spec.user", "", "at least one of user or group must be specified"))
        if bool(spec.get("resourceAttributes")) == bool(spec.get("nonResourceAttributes")):
            says = f"Invalid value: null: {_EXACTLY_ONE}"
            raise _refused(FieldProblem("spec", "FieldValueInvalid", says))
        return _answered(body, context, {"allowed": True})


class RulesReviewStrategy(Strategy):
    def review(self, body: Object, context: Context) -> Object:
        if not (body.get("spec") or {}).get("namespace"):
            raise bad_request("no namespace on request")
        rules = {
            "resourceRules": [{"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}],
            "nonResourceRules": [
                {"verbs": ["get"], "nonResourceURLs": _OPEN_PATHS},
                {"verbs": ["*"], "nonResourceURLs": ["*"]},
            ],
            "incomplete": False,
        }
        return {**_answered(body, context, rules), "spec": {}}


class SelfReviewStrategy(Strategy):
    def review(self, body: Object, context: Context) -> Object:
        user = {"username": context.user, "groups": list(context.groups)}
        answer = _answered({}, context, {"userInfo": user})
        del answer["spec"]
        answer["metadata"] = {"creationTimestamp": context.timestamp()}
        return answer


class TokenReviewStrategy(Strategy):
    """Answers that the token is not authenticated: no tokens are known here."""

    def review(self, body: Object, context: Context) -> Object:
        return _answered(body, context, {"user": {}, "error": "invalid bearer token"})
