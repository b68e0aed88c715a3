"""What replicas share, and how they go on without it; no module here knows a backend's library."""
