"""Long texts as passages: split, ranked for a question, chosen and rendered again. Pure."""
