"""Counting: how many tokens a request is for a model; it reads rank files once, and does no other I/O."""
