"""Metrics, the access log and events. It observes finished requests and never changes one."""
