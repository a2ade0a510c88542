"""Quiet nodes first: the less of a node's CPU is promised, the better. A scoring plugin in ten lines."""


class QuietNodes:
    name = "QuietNodes"

    def score_node(self, state, pod, node_info):
        cpu = node_info.allocatable["cpu"]
        return 100.0 * max(node_info.free["cpu"], 0) / cpu if cpu else 0.0
