"""OpenAI's Embeddings API, for the proxy's own calls; clients' requests to it are passed through."""
