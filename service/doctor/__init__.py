"""What ails a service that gives fewer hits than it could: read from its figures, and tried on the spot."""
