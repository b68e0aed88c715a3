"""One request from top to bottom: the only package with asynchronous decisions."""
