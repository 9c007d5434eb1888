"""Client of the kvshelf KV-cache persistence service."""
