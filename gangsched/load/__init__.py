"""`gangsched load`: each node's load against its capacity, and how evenly it is spread, for people.

Reads the API server directly, no scheduler needed. Rooms: `report` computes the figures (pure), `command`
reads and prints.
"""
