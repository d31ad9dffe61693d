"""The demo: an app with example jobs, and a script that kills a worker and shows the recovery."""
