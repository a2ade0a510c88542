"""`gangsched top`: queue, cluster, rates and latencies of a running scheduler, in a terminal, as they change.

Lives here: the page that the scheduler's port serves for it (page), what two looks at it amount to (rates), a
picture of given size (screen), the terminal and its keys (terminal), the command itself (command).
"""
