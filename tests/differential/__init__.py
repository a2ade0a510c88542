"""The same decisions as kube-scheduler: both decide on the same objects, and what they say is compared.

Random clusters and pods, each from a seed. kube-scheduler is the real one on a real API server and tells in
its log which nodes it found feasible, what each of its plugins gave them, and where the pod went; ours is
told of the same objects, as the API server holds them, and decides in memory. What differs and is meant to
is in differences.py; anything else fails.
"""
