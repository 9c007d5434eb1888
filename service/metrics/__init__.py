"""What the service counts. The names are API: dashboards and alerts stand on them."""

from service.metrics.registry import Metrics

__all__ = ["Metrics"]
