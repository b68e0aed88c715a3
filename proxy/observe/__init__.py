"""What is seen of finished requests: metrics, traces, recordings, the log. It never changes one."""
