"""The proxy's own paths: who may use them, the page and its API."""
