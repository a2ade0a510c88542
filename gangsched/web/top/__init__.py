"""`gangsched top`: queue, cluster, rates and latencies of a running scheduler, live in a terminal.

Lives here: the page that the scheduler's port serves for it (page), differences between two pages (rates), a
picture of given size (screen), the terminal and its keys (terminal), the command itself (command).
"""
