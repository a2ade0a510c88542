"""What is kept from groups in line, for others: where, how much, until when, and what users see of it.

Called by core.groups. Not here: the record of what is kept (core.queueing.claims, core.cache.cache), the turn
of a group (core.groups.attempts.attempts).
"""
