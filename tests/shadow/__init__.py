"""Shadow mode: in virtual time, and beside a real kube-scheduler."""
