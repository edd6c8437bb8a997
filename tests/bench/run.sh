#!/usr/bin/env bash
# Measures the daemon against the database's ceiling and against others, everything on this machine in one run:
#   tests/bench/run.sh            every table (about an hour)
#   tests/bench/run.sh NAME...    the tables of these names: promise, mirror, databases, partitions, instances, inbox,
#                                 duplicates, payloads, latency
#   tests/bench/run.sh short      the daemon against the ceiling of PostgreSQL: fails if the ratio has fallen by half
# It installs what is missing, starts the services of tests/stack, and stops what it started.
set -euo pipefail
cd "$(dirname "$0")/../.."

if [ "${1:-}" = short ]; then tests/stack/install.sh all; else tests/stack/install.sh bench; fi
already=$(tests/stack/status.sh | grep -c ' up ' || true)
tests/stack/up.sh all
# Services that somebody else had started stay as they were.
if [ "$already" -eq 0 ]; then trap 'tests/stack/down.sh --purge' EXIT; fi
# shellcheck source=tests/stack/env.sh
. tests/stack/env.sh
# A worker that was up before the sink was installed does not know it.
if [ "${1:-}" != short ] && ! curl -fsS "$COUNTERSIGN_CONNECT_URL/connector-plugins" | grep -q JdbcSinkConnector; then
  tests/stack/connect.sh kill
  tests/stack/connect.sh start
fi
cargo bench --locked --bench contest -- "$@"
