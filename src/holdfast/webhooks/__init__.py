"""Telling others over HTTP how jobs end."""
