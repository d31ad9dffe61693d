"""The app for blocking code."""
