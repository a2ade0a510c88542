"""One scheduling cycle: the members of a unit placed on a Trial, all or nothing, devices included.

Answers a Plan or a FitError and changes nothing but its Trial. Not here: which group has its turn, and what
becomes of the answer (core.groups.attempts); victims (core.preemption).
"""
