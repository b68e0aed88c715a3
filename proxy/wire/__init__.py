"""Understanding what is on the wire: requests, refusals, streams, headers; it does no I/O."""
