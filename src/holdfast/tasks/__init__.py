"""What a program says of its work: tasks, their options and limits, and what a running job sees of itself."""
