"""The resume plan: from what is cached and what the engine holds to what it loads and where it runs."""
