"""The command `manage.py holdfast`."""
