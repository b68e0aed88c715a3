"""Which turns of a conversation bear on the question."""
