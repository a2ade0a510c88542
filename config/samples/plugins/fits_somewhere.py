"""Keep out what the cluster could never hold: a pod that asks for more than the largest node offers.

Such a pod is not tried and not counted as a member, so its gang does not reserve anything for it either, and
no autoscaler is called. It is looked at again when a node comes or grows.

    gangsched scheduler --plugin config/samples/plugins/fits_somewhere.py --config FILE

and, in a profile of FILE, `plugins: {multiPoint: {enabled: [{name: FitsSomewhere}]}}`.
"""

from gangsched.plugin import SUCCESS, Change, Status, pod_requests


class FitsSomewhere:
    name = "FitsSomewhere"
    cured_by = Change.NODE_ADDED | Change.NODE_ALLOCATABLE

    def pre_enqueue(self, pod, view):
        largest = view.largest()
        for resource, amount in pod_requests(pod.spec).items():
            if amount > largest.get(resource, 0):
                most = largest.get(resource, 0)
                return Status.unschedulable(f"needs {amount} {resource} on one node, the largest has {most}")
        return SUCCESS

    def cures(self, change, template, view):
        return True
