"""The deploy files: checked by linters, and what they would start is started."""
