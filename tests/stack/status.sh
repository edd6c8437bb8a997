#!/usr/bin/env bash
# Says what of the test stack answers, where, and under which process id.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/stack/env.sh
. ./env.sh
# shellcheck source=tests/stack/services.sh
. ./services.sh

address() {
  case $1 in
  postgres) echo "$COUNTERSIGN_POSTGRES_URL" ;;
  mariadb) echo "$COUNTERSIGN_MARIADB_URL" ;;
  redis) echo "$COUNTERSIGN_REDIS_URL" ;;
  kafka) echo "$COUNTERSIGN_KAFKA" ;;
  registry) echo "$COUNTERSIGN_REGISTRY_URL" ;;
  connect) echo "$COUNTERSIGN_CONNECT_URL" ;;
  esac
}

for name in "${ALL[@]}"; do
  if "answers_$name"; then state=up; elif alive "$name"; then state=starting; else state=down; fi
  printf '%-9s %-9s %-8s %s\n' "$name" "$state" "$(pid_of "$name" || echo -)" "$(address "$name")"
done
