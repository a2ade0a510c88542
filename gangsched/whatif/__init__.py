"""`gangsched whatif`: where a job would go if it were submitted now, by the scheduler's own core.

Lives here: turning manifests into pods (manifests, controllers); the trial, a core that is told of the job
and of the changes asked about, beside an API server that does everything at once (trial); what is asked
(question) and what came of it (answer); flags and printing (command). Not here: the snapshot
(gangsched.snapshot), why something does not fit (core.explain). Nothing is written.
"""
