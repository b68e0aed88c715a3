"""What of a tool result bears on the question."""
