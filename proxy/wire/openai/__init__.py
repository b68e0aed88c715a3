"""What OpenAI's APIs share: the JSON of errors."""
