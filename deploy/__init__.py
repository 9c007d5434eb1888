"""Files for those who run the service. Only `deploy/watch` is code."""
