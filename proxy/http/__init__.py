"""The transport: a server for clients, a client for upstreams. It knows nothing about models."""
