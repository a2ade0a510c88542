"""What decisions and the dashboard cost, measured in memory."""
