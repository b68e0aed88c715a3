"""What is spoken with clients and upstreams: one folder for each API."""
