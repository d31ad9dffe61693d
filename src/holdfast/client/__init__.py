"""What an open app is made of: enqueue, claim, operate, inspect."""
