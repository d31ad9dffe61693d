"""Tasks, their options and limits, and the context of a running job."""
