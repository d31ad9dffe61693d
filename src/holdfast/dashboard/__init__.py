"""The dashboard: plain files that a browser runs. It knows nothing but the HTTP API."""
