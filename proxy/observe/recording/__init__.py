"""Recordings: what is kept of a request, its lines and the files they are in."""
