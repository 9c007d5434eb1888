"""Storage of records: the tier contract, its implementations, and the small documents beside them."""
