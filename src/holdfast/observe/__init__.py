"""What can be seen of the queue from outside."""
