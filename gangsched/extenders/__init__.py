"""Floor 3: the configuration's extenders, called over HTTP or HTTPS.

client.py speaks to one of them, asking.py carries out the core's AskExtenders with all of them. The use of
their answers is in core.groups.attempts.extenders. Loaded only if the configuration has extenders.
"""
