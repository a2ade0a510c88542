"""Per-user fair share: in each queue the user whose pods hold the fewest GPUs has the next turn.

Users are told apart by the label example.com/user, in whatever namespaces their pods are. Queues, if the
configuration has any, are compared first, as without this plugin.

    gangsched scheduler --plugin config/samples/plugins/user_share.py --config FILE

and, in every profile of FILE,
`plugins: {queueSort: {enabled: [{name: UserShare}], disabled: [{name: PrioritySort}]}}`.
"""

USER = "example.com/user"


class UserShare:
    name = "UserShare"
    usage_labels = (USER,)  # what pods with each of its values hold is counted

    def sort_key(self, group):
        return (-group.priority, group.first_complete_s)

    def user(self, group):
        first = group.first()
        return (first.pod.metadata.labels or {}).get(USER, "") if first else ""

    def lane(self, group, view):
        return f"{view.queue_of(group)}/{self.user(group)}"

    def lane_key(self, first, view):
        place = view.place_of_queue(view.queue_of(first), view.request_of(first))
        held = view.used_by_label(USER, self.user(first))
        return (place, held.get("nvidia.com/gpu", 0), first.first_complete_s)
