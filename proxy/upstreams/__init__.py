"""Providers: where requests go, and calls of our own."""
