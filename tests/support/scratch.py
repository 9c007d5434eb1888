"""Where simulated disks are, whose syncs are simulated, too."""

import shutil
from pathlib import Path

_MEMORY = Path("/dev/shm")
_ENOUGH_BYTES = 512 << 20
"""Containers have less by default."""

SCRATCH = str(_MEMORY) if _MEMORY.is_dir() and shutil.disk_usage(_MEMORY).free >= _ENOUGH_BYTES else None
"""A directory in memory where there is one with room, None for the usual one."""
