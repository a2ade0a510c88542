"""Ask an HTTP service for a budget: a pod stays out of the queue until the service allows it.

The service gets a POST of {"namespace", "name", "uid", "requests", "used"} and answers {"allowed": true}, or
{"allowed": false, "reason": "..."}: then it is asked again after `againSeconds`. A service that is down, slow
or talks nonsense keeps its pods out, says so on them, and is asked again after a backoff; all other pods go
on.

    gangsched scheduler --plugin config/samples/plugins/ask_budget.py --config FILE

and, in a profile of FILE, `plugins: {multiPoint: {enabled: [{name: AskBudget}]}}` and
`pluginConfig: [{name: AskBudget, args: {url: "http://budget.finance:8080/ask"}}]`.
"""

import msgspec

from gangsched.plugin import SUCCESS, Status, pod_requests


class Args(msgspec.Struct, frozen=True, rename="camel"):
    url: str = "http://localhost:8080/ask"
    again_seconds: float = 30.0


class AskBudget:
    name = "AskBudget"
    Args = Args
    hook_timeout_s = 3.0

    def __init__(self, args):
        self.url = args.url
        self.again_s = args.again_seconds

    async def pre_enqueue(self, pod, view, handle):
        meta = pod.metadata
        about = {"namespace": meta.namespace, "name": meta.name, "uid": meta.uid}
        about["requests"], about["used"] = pod_requests(pod.spec), dict(view.used(meta.namespace))
        answer = await handle.ask(self.url, about)
        allowed = answer.get("allowed") if isinstance(answer, dict) else None
        if not isinstance(allowed, bool):
            raise ValueError('the service did not answer {"allowed": true} or {"allowed": false}')
        if allowed:
            return SUCCESS
        return Status.wait(str(answer.get("reason", "no budget"))[:200], timeout_s=self.again_s)
