"""A simulated upstream, as strict as the real ones, for the demo and for tests. It shares no parser with the proxy."""
