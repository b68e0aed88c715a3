"""What of a conversation the work needs next (DESIGN 5a): repeated calls, named definitions, what users typed."""
