"""`bench --load-balance`: the published experiment on how evenly schedulers load unequal workers.

Rooms: `model` states what workers can do and what tasks use, `published` is the paper's baseline, `simulated`
and `embedded` let a scheduler place the tasks, `real` lets them run as processes (`task`) in cgroups
(`workers`), `report` compares and prints, `picture` draws. Called by lab.bench.command.
"""
