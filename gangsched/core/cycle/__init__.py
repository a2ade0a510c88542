"""One scheduling cycle: the members of a unit placed on a Trial, all or nothing, devices included.

Returns a Plan or a FitError and changes nothing but its Trial. Not here: which group is next, and the use of
the result (core.groups.attempts.attempts); victims (core.preemption).
"""
