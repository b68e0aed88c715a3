"""What the proxy remembers: token counts, summaries and records of models, in this process and shared through Redis."""
