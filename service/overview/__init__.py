"""What the page for people shows: samples of the metrics over the last hour, and answers in words."""

from service.overview.history import History

__all__ = ["History"]
