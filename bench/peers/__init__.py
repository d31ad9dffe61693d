"""Other queues on the same store, each measured in its own environment, at the settings that serve it best."""
