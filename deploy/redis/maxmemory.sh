#!/bin/sh
# Print `maxmemory` for a pool on this machine: a tenth of its memory, or of the limit of its control group when that is
# less. Usage: redis-server pool.conf --maxmemory "$(./maxmemory.sh)"; another share in per cent as the argument.
set -eu
percent=${1:-10}
case $percent in '' | *[!0-9]*) echo "usage: $0 [PERCENT from 1 to 90]" >&2; exit 2 ;; esac
if [ "$percent" -lt 1 ] || [ "$percent" -gt 90 ]; then echo "usage: $0 [PERCENT from 1 to 90]" >&2; exit 2; fi

total=$(awk '/^MemTotal:/ { printf "%.0f", $2 * 1024 }' /proc/meminfo)
limit=$(cat /sys/fs/cgroup/memory.max 2>/dev/null || echo max)
if [ "$limit" != max ] && [ "$limit" -lt "$total" ]; then total=$limit; fi
echo $((total / 100 * percent))
