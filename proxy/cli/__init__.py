"""The command line: parses arguments, calls the other packages and prints. No other package imports it."""
