#!/usr/bin/env bash
# The tests need a real Redis server, Prometheus with promtool, Chromium and systemd-analyze. Install what is missing
# from Debian packages, which takes apt-get and root; elsewhere say how to point the tests at what is already there.
set -euo pipefail

missing=()
if [ -z "${KVSHELF_TEST_REDIS_SERVER:-}" ] && ! command -v redis-server >/dev/null; then missing+=(redis-server); fi
if [ -z "${KVSHELF_TEST_PROMTOOL:-}" ] && ! command -v promtool >/dev/null; then missing+=(prometheus); fi
if [ -z "${KVSHELF_TEST_CHROMIUM:-}" ] && ! command -v chromium >/dev/null; then missing+=(chromium); fi
if ! command -v systemd-analyze >/dev/null; then missing+=(systemd); fi
if [ ${#missing[@]} -eq 0 ]; then exit 0; fi

if command -v apt-get >/dev/null && [ "$(id -u)" -eq 0 ]; then
    echo "== Installing Debian packages for the tests: ${missing[*]}"
    # The packages would start their services at once; the tests start servers of their own.
    policy=/usr/sbin/policy-rc.d
    made_policy=
    if [ ! -e "$policy" ]; then printf '#!/bin/sh\nexit 101\n' >"$policy"; chmod +x "$policy"; made_policy=yes; fi
    trap '[ -z "$made_policy" ] || rm -f "$policy"' EXIT
    apt-get update -qq
    DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
    exit 0
fi

cat >&2 <<TEXT
The tests need: ${missing[*]}. Install them as root (Debian: apt-get install redis-server prometheus chromium systemd),
or name what is there already:
  KVSHELF_TEST_REDIS_SERVER=/path/to/redis-server   a Redis 7 server program that the tests start themselves
  KVSHELF_TEST_PROMTOOL=/path/to/promtool           Prometheus' promtool
  KVSHELF_TEST_CHROMIUM=/path/to/chromium           a browser that the page is tested in
TEXT
exit 1
