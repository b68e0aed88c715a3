"""Traces: the spans of a request, their encoding and their export."""
