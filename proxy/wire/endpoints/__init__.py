"""One module per URL that is fitted: how its JSON becomes a Prompt, and a Draft becomes JSON again."""
