"""An upstream as strict as the real ones, for the demo and for tests."""
