"""Sticky machine: a virtual machine starts again on the node where it first ran, through two owners.

A pod that runs a machine is owned by a VirtualMachineInstance (KubeVirt), which lives as long as one run, and
that by the VirtualMachine, which stays. When the pod is bound, the VirtualMachine is annotated with the node;
pods of its later instances may go nowhere else. The scheduler needs more rights for it:
sticky_machine_rbac.yaml. Use it with

    gangsched scheduler --plugin config/samples/plugins/sticky_machine.py --config FILE

and, in a profile of FILE, `plugins: {multiPoint: {enabled: [{name: StickyMachine}]}}`.
"""

from gangsched.plugin import SKIP, SUCCESS, ApiError, Status

KEY = "example.com/first-node"
TRIES = 5
INSTANCES, MACHINES = "virtualmachineinstances.kubevirt.io", "virtualmachines.kubevirt.io"
PATH = "/apis/kubevirt.io/v1/namespaces/{}/{}/{}"


def owner_of(references, kind):
    """(name, UID) of the controlling owner if it is of this kind, else None."""
    for one in references or ():
        if one.controller and one.kind == kind:
            return one.name, one.uid
    return None


class StickyMachine:
    name = "StickyMachine"
    watches = (INSTANCES, MACHINES)
    sees_pods = False  # only the node's name is read

    def sign(self, pod):
        """Pods of different instances are not alike."""
        return owner_of(pod.metadata.owner_references, "VirtualMachineInstance")

    def pre_filter(self, state, template, view):
        namespace = template.pod.metadata.namespace
        owner = owner_of(template.pod.metadata.owner_references, "VirtualMachineInstance")
        if owner is None:
            return SKIP
        instance = view.objects(INSTANCES).get((namespace, owner[0]))
        if instance is None or instance.metadata.uid != owner[1]:
            return Status.unschedulable(f"its VirtualMachineInstance {owner[0]} is not known yet")
        owner = owner_of(instance.metadata.owner_references, "VirtualMachine")
        machine = view.objects(MACHINES).get((namespace, owner[0])) if owner else None
        if machine is None or machine.metadata.uid != owner[1]:
            return SKIP  # an instance of its own, or its machine is gone
        node = (machine.metadata.annotations or {}).get(KEY)
        state.data[self.name] = node
        return SUCCESS if node else SKIP

    def filter_node(self, state, pod, node_info):
        if node_info.name == state.data[self.name]:
            return SUCCESS
        return Status.unschedulable(f"node(s) were not {state.data[self.name]}, where its machine first ran")

    async def post_bind(self, pod, node_name, handle):
        namespace, owner = pod.metadata.namespace, self.sign(pod)
        if owner is None:
            return
        instance = await handle.get(PATH.format(namespace, "virtualmachineinstances", owner[0]))
        references = instance["metadata"].get("ownerReferences") or ()
        machine = next((one["name"] for one in references if one["kind"] == "VirtualMachine"), "")
        for tries_left in reversed(range(TRIES if machine else 0)):
            path = PATH.format(namespace, "virtualmachines", machine)
            meta = (await handle.get(path))["metadata"]
            if KEY in (meta.get("annotations") or {}):
                return
            change = {"resourceVersion": meta["resourceVersion"], "annotations": {KEY: node_name}}
            try:
                return await handle.patch(path, {"metadata": change})
            except ApiError as error:
                if error.code != 409 or not tries_left:  # 409: changed meanwhile, most often its status
                    raise
