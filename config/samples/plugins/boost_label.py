"""A label that moves a pod's group in the queue: `example.com/boost: "50"` adds 50 to its priority there.

It decides who is tried first, and nothing else: whom the group may preempt is its own priority's. Let an
admission policy say who may set the label.

    gangsched scheduler --plugin config/samples/plugins/boost_label.py --config FILE

and, in a profile of FILE, `plugins: {multiPoint: {enabled: [{name: BoostLabel}]}}`.
"""

import msgspec

from gangsched.plugin import SUCCESS, Status


class Args(msgspec.Struct, frozen=True):
    label: str = "example.com/boost"
    most: int = 1000


class BoostLabel:
    name = "BoostLabel"
    Args = Args

    def __init__(self, args):
        self.label = args.label
        self.most = args.most

    def pre_enqueue(self, pod):
        text = (pod.metadata.labels or {}).get(self.label)
        if text is None:
            return SUCCESS
        if not text.isdecimal() or len(text) > 9 or int(text) > self.most:
            return Status.unschedulable(f"label {self.label} is not a number within 0..{self.most}")
        return Status.let_in(raise_by=int(text))
