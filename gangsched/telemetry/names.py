"""Names and limits of traces. Keys follow Kubernetes' semantic conventions if these have one.

Used by every room of telemetry; imports nothing of OpenTelemetry, so that reading a file does not load it.
Source: OpenTelemetry semantic conventions, resource/k8s.
"""

from __future__ import annotations

SERVICE = "gangsched-scheduler"
SCOPE = "gangsched.telemetry"

SUBMITTERS_KEY = "tracing.k8s.io/traceparent"
"""On a pod or a PodGroup: the submitter's trace (KEP-5915's key)."""
TRACEPARENT_KEY = "gangsched.io/traceparent"
"""In every Binding: the root of the gang's trace."""

GANG = "schedule gang"
POD = "schedule pod"
GATHERING = "Gathering"
ATTEMPT = "Attempt"
QUEUE_WAIT = "Queue wait"
CYCLE = "Cycle"
RESERVE = "Reserve"
PERMIT_WAIT = "Permit wait"
BIND = "Bind"
UNRESERVE = "Unreserve"
UNWIND = "Unwind"

NAMESPACE = "k8s.namespace.name"
POD_NAME = "k8s.pod.name"
POD_UID = "k8s.pod.uid"
NODE_NAME = "k8s.node.name"
GROUP = "gangsched.gang"
DIALECT = "gangsched.dialect"
SCHEDULER = "gangsched.scheduler"
MIN_COUNT = "gangsched.min_count"
TOTAL_COUNT = "gangsched.total_count"
MEMBERS = "gangsched.members"
ATTEMPT_NUMBER = "gangsched.attempt"
ATTEMPTS = "gangsched.attempts"
ATTEMPTS_UNTOLD = "gangsched.attempts.untold"
CONTINUED = "gangsched.continued"
VERDICT = "gangsched.verdict"
REASON = "gangsched.reason"
WAITS_FOR = "gangsched.waits_for"
CALLS = "gangsched.calls"
TRIED_WITH = "gangsched.tried_with"
NODES = "gangsched.nodes"
N_NODES = "gangsched.nodes.count"
DEVICES = "gangsched.devices"
N_DEVICES = "gangsched.devices.count"
CLAIM = "gangsched.resource_claim"
RANK = "gangsched.rank"
RANK_DISTANCE = "gangsched.rank.distance"
RANK_DISTANCE_LEAST = "gangsched.rank.distance.least"
"""On a root: the distances from rank to rank, added up, and the least that its places allow."""
N_BOUND = "gangsched.members.bound"
N_FAILED = "gangsched.members.failed"
EVENTS_UNTOLD = "gangsched.events.untold"
SPANS_UNTOLD = "gangsched.spans.untold"
"""On a root: how many spans were dropped before it was known that the gang would be traced."""
KEPT = "gangsched.kept"
"""On a root outside the ratio: why the gang is traced nevertheless; `slow`, `failed` or `preempting`."""
PREEMPTS = "preempts"
"""An event of a Permit wait for victims, one for each of them."""
RESERVED_CLAIM = "reserved claim"
"""An event of a Bind: a resource claim is allocated and reserved, as the API server has answered."""
LINK = "gangsched.link"
"""On a span link: `submitter`, `earlier` (of the same gang) or `starts together`."""

SCHEDULED = "Scheduled"
UNSCHEDULABLE = "Unschedulable"
GIVEN_BACK = "GivenBack"
BIND_FAILED = "BindFailed"
BOUND_IN_PART = "BoundInPart"
ALLOWED = "Allowed"
WAIT = "Wait"
GONE = "Gone"
STOPPED = "Stopped"
"""The scheduler ended, and with it the trace."""
NOT_TRIED = "NotTried"
TROUBLE = (GIVEN_BACK, BIND_FAILED, BOUND_IN_PART)
"""Verdicts of spans whose status is Error."""
TOLD_IN_LOG = (SCHEDULED, *TROUBLE)

MAX_TEXT = 1024
# A browser must be able to open a trace of a gang of 1,000: further items are counted and not listed.
MAX_LISTED = 64
MAX_EVENTS = 256
MAX_PLAIN_EVENTS = 224
"""Part of MAX_EVENTS; the rest is kept for failures."""
MAX_QUEUE_EVENTS = 32
MAX_LINKS = 16
MAX_LOOKED_AT = 64
"""Members checked for the submitter's trace; a job's pods come from one template."""
MAX_FAILED_TOLD = 32
"""Failed attempts of a gang that are recorded one by one; a gang may be tried for weeks."""
