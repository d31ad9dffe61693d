"""The demo: an app with visible jobs, and the story that is told with it."""
