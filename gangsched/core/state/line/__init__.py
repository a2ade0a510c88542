"""The queue: its order, backoffs, lanes, and which groups a change may have cured."""
