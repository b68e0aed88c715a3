"""The HTTP/1.1 client for upstreams: connection pool, connections and responses."""
