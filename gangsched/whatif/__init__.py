"""`gangsched whatif`: where a job would go if it were submitted now, by the scheduler's own core.

Lives here: turning manifests into pods (manifests, makers); the trial, a core that gets the job and the
proposed changes, with an API server that does everything at once (trial); the question (question) and its
result (answer); flags and printing (command). Not here: the snapshot (gangsched.command.snapshot), why
something does not fit (core.explaining.explain). Nothing is written.
"""
