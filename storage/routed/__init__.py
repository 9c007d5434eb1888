"""Several tiers of one kind behind one: each record on the shelf that its id says."""

from storage.routed.tier import RoutedTier

__all__ = ["RoutedTier"]
