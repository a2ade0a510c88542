"""`gangsched load`: how busy each node is against what it can do, and how evenly that is spread, for people.

Read from the API server directly, no scheduler needed. Rooms: `report` makes the figures (pure), `command`
reads and prints.
"""
