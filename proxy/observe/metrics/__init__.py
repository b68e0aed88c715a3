"""Metrics: rows, their aggregation, their exposition for Prometheus, and the sums that the page shows."""
