"""What outlives a plan's answer: the lease that holds its records, its facts for later stores, and its accounting."""
