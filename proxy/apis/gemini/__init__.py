"""Gemini's own API, as far as the proxy itself calls it."""
