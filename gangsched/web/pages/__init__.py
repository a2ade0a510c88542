"""The pages themselves: the queue, queues, explanations, stories, reservations, waits in Permit."""
