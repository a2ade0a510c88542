"""Claims of devices: made from templates for pods, and freed when their last pod is done.

controller.py reconciles, claim_view.py reads a claim. Not here: allocating devices, which is a scheduler's
work, and preparing them on a node (lab.apiserver.simulated.nodes.prepared_claims).
"""
