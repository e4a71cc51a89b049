"""Kind `http`: requests to web services, pooled, bounded and kept away from private networks."""
