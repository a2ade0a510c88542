"""What tests of every room share: waiting for what other processes (processes.py) or tasks (tasks.py) do."""
