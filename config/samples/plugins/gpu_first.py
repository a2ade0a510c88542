"""GPU jobs first: gangs that ask for GPUs stand in front of all others, whatever their priority.

    gangsched scheduler --plugin config/samples/plugins/gpu_first.py --config FILE

and, in every profile of FILE,
`plugins: {queueSort: {enabled: [{name: GpuFirst}], disabled: [{name: PrioritySort}]}}`.
"""

import msgspec


class Args(msgspec.Struct, frozen=True):
    resource: str = "nvidia.com/gpu"


class GpuFirst:
    name = "GpuFirst"
    Args = Args

    def __init__(self, args):
        self.resource = args.resource

    def sort_key(self, group):
        wants = any(self.resource in info.template.requests for info in group.members.values())
        return (not wants, -group.priority, group.first_complete_s)
