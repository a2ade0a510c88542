"""What serves the pages: the server, its life beside the scheduler's loop, and health."""
