"""What Ollama's own APIs share: options, truncation, responses and errors."""
