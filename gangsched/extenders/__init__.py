"""Floor 3: the configuration's extenders, asked over HTTP or HTTPS.

client.py speaks to one of them, asking.py carries out the core's AskExtenders with all of them. What their
answers do is core.groups.extenders's. Loaded only where the configuration has extenders.
"""
