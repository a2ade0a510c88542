"""Sticky node: a job's pods go back to the node on which its first pod ran, to what is cached there.

When a pod of a Job or StatefulSet is bound, its owner is annotated with the node; later pods of that owner
may go nowhere else. Take the annotation off the owner to let it move. The scheduler needs more rights for
it: sticky_node_rbac.yaml. Use it with

    gangsched scheduler --plugin config/samples/plugins/sticky_node.py --config FILE

and, in a profile of FILE, `plugins: {multiPoint: {enabled: [{name: StickyNode}]}}`.
"""

import msgspec

from gangsched.plugin import SKIP, SUCCESS, ApiError, Status

# What the owner is, in ownerReferences: as plugins follow it, and where the API server has it.
OWNERS = {
    "Job": ("jobs.batch", "/apis/batch/v1/namespaces/{}/jobs/{}"),
    "StatefulSet": ("statefulsets.apps", "/apis/apps/v1/namespaces/{}/statefulsets/{}"),
}

TRIES = 5


class Args(msgspec.Struct, frozen=True):
    annotation: str = "example.com/first-node"


def owner_of(pod):
    """The owner that controls the pod, if it is one of the kinds above."""
    return next((o for o in pod.metadata.owner_references or () if o.controller and o.kind in OWNERS), None)


class StickyNode:
    name = "StickyNode"
    Args = Args
    watches = tuple(kind for kind, _ in OWNERS.values())
    sees_pods = False  # nothing but the node's name is read: no need to ask again while a gang is placed

    def __init__(self, args):
        self.key = args.annotation

    def sign(self, pod):
        """Pods of different owners are not alike."""
        owner = owner_of(pod)
        return owner and (owner.kind, owner.name, owner.uid)

    def pre_filter(self, state, template, view):
        owner = owner_of(template.pod)
        if owner is None:
            return SKIP
        found = view.objects(OWNERS[owner.kind][0]).get((template.pod.metadata.namespace, owner.name))
        node = (found.metadata.annotations or {}).get(self.key) if found is not None else None
        if node is None:
            return SKIP
        state.data[self.name] = node
        return SUCCESS

    def filter_node(self, state, pod, node_info):
        if node_info.name == state.data[self.name]:
            return SUCCESS
        return Status.unschedulable(f"node(s) were not {state.data[self.name]}, where its owner first ran")

    async def post_bind(self, pod, node_name, handle):
        owner = owner_of(pod)
        if owner is None:
            return
        path = OWNERS[owner.kind][1].format(pod.metadata.namespace, owner.name)
        for tries_left in reversed(range(TRIES)):
            meta = (await handle.get(path))["metadata"]
            if meta["uid"] != owner.uid or self.key in (meta.get("annotations") or {}):
                return  # another owner of that name, or another pod of this one was the first
            change = {"resourceVersion": meta["resourceVersion"], "annotations": {self.key: node_name}}
            try:
                return await handle.patch(path, {"metadata": change})
            except ApiError as error:
                if error.code != 409 or not tries_left:  # 409: changed meanwhile, most often its status
                    raise
