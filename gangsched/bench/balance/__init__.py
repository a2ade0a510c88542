"""`bench --load-balance`: the published experiment on how evenly schedulers load unequal workers.

Rooms: `model` says what workers can do and what tasks use, `simulated` and `embedded` let a scheduler place
the tasks, `report` compares and prints, `picture` draws. Called by bench.command.
"""
