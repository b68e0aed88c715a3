"""What the proxy would have done: reads recorded requests, plans each one, adds up what came of it. Sends nothing."""
