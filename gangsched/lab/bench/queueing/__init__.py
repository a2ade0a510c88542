"""`bench --queueing`: how long jobs wait under the real core, beside published policies, in virtual time.

Lives here: workloads (traces), the published policies on a machine of equal devices (profile,
policies), the real core driven in virtual time (live), the judge, which shares nothing with what it judges
(judge), the table and the picture (report, picture). Not here: faults of any kind (sim).
"""
