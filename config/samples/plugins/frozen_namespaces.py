"""Nothing starts in a frozen namespace: a Permit hook that asks the API server by kubernetes-asyncio.

Freeze one and let it go again:

    kubectl label namespace team-a example.com/frozen=true
    kubectl label namespace team-a example.com/frozen-

The scheduler's own role may list namespaces, so this needs no further right.
"""

from gangsched.plugin import SUCCESS, Status

LABEL = "example.com/frozen"


class FrozenNamespaces:
    name = "FrozenNamespaces"
    hook_timeout_s = 30.0  # the first call imports kubernetes-asyncio, which takes seconds

    async def permit(self, group, siblings, handle):
        api = await handle.kubernetes()
        from kubernetes_asyncio.client import CoreV1Api  # loaded by now

        name = group.key.namespace
        found = await CoreV1Api(api).list_namespace(field_selector=f"metadata.name={name}")
        if any((one.metadata.labels or {}).get(LABEL) == "true" for one in found.items):
            return Status.unschedulable(f"namespace {name} is frozen ({LABEL})")
        return SUCCESS
