#!/usr/bin/env bash
# Starts the test stack and waits until every part answers. What answers already is left alone.
#   up.sh databases   PostgreSQL, MariaDB, Redis
#   up.sh all         those, and Kafka, the Apicurio registry, Kafka Connect with Debezium
# Addresses and ports: env.sh. Users: countersign/countersign (owns everything), debezium/debezium (reads the log).
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/stack/env.sh
. ./env.sh
# shellcheck source=tests/stack/services.sh
. ./services.sh

case ${1:-} in
databases) services=("${DATABASES[@]}") ;;
all) services=("${ALL[@]}") ;;
*) sed -n '2,5p' "$0"; exit 2 ;;
esac

began=$SECONDS
mkdir -p "$dir"
exec 9>"$dir/lock" # two `up.sh` at once would start everything twice
flock 9

started=()
for name in "${services[@]}"; do
  if "answers_$name"; then continue; fi
  if alive "$name"; then continue; fi # still starting
  "start_$name" 9>&-
  started+=("$name")
done

# A part that died is reported at once and with its last words, not after the deadline.
answers_or_died() { "answers_$1" || ! alive "$1"; }
for name in "${services[@]}"; do
  if [ "$name" = postgres ]; then wait_for 60 "postgres to listen (log: $dir/postgres.log)" postgres_databases; fi
  wait_for 120 "$name to answer (log: $dir/$name.log)" answers_or_died "$name"
  if ! "answers_$name"; then
    echo "stack: $name ended while starting; the end of $dir/$name.log:" >&2
    tail -20 "$dir/$name.log" >&2
    exit 1
  fi
done
echo "stack: up after $((SECONDS - began)) s (started: ${started[*]:-nothing, all of it was up})"
