"""The dashboard: static files for the browser, which use only the HTTP API."""
