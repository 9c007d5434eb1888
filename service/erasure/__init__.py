"""Erasure: records deleted for good by what they belong to, as jobs with progress and a receipt."""
