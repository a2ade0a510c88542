"""The contract: what the embedded API server and a real kube-apiserver answer alike.

Every test here runs on both; differences.py lists what differs, and why. Written from the real server's
answers: where a test and the real server disagree, the test is wrong.
"""
