"""The vocabulary: leaf values that every package imports. It imports nothing of ours and decides nothing."""
