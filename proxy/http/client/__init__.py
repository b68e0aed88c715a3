"""The side of the upstreams."""
