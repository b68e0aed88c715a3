"""The side of the clients."""
