"""What is remembered, in this process and shared through Redis."""
