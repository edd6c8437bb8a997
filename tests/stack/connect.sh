#!/usr/bin/env bash
# Talks to the stack's Kafka Connect.
#   connect.sh register FILE [KEY=VALUE...]  creates or changes the connector of a debezium/*.json file. Host, port
#                                            and brokers of the stack are filled in; KEY=VALUE overrides a setting,
#                                            KEY= removes it, name=N names the connector
#   connect.sh wait NAME                     until it runs and streams; shows the trace if it failed
#   connect.sh checkpoint NAME               restarts its task, so that its source offsets are stored now
#   connect.sh delete NAME                   deletes the connector and forgets its source offsets
#   connect.sh kill                          SIGKILL of the worker: nothing is flushed
#   connect.sh start                         starts the worker again and waits for it
#
# Duplicates by the thousand: register, wait, checkpoint, change rows, see them in the topic, kill, start. The
# worker flushes source offsets every COUNTERSIGN_CONNECT_FLUSH_MS (60 s), so all that came since the checkpoint
# is emitted again, at new Kafka offsets. Without the checkpoint the connector would take its snapshot again.
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"
# shellcheck source=tests/stack/services.sh
. "$here/services.sh"

usage() { sed -n '2,11p' "$0"; exit 2; }

rest() { # rest METHOD PATH [BODY]
  local answer status
  answer=$(curl -sS -X "$1" "$COUNTERSIGN_CONNECT_URL$2" -w '\n%{http_code}' -H 'Content-Type: application/json' ${3+--data "$3"})
  status=${answer##*$'\n'}
  # The workers are rebalancing, said in one of two ways: to be tried again.
  if [ "$status" = 409 ] || { [ "$status" = 500 ] && [[ $answer == *"a rebalance is expected"* ]]; }; then return 75; fi
  if [ "$status" -ge 400 ]; then
    echo "connect: $1 $2: ${answer}" >&2
    return 1
  fi
  echo "${answer%$'\n'*}"
}

retry_rest() {
  local deadline=$((SECONDS + 60)) code
  while true; do
    code=0
    rest "$@" || code=$?
    if [ "$code" != 75 ] || [ "$SECONDS" -ge "$deadline" ]; then return "$code"; fi
    sleep 0.3
  done
}

register() {
  local file=$1 config name
  shift
  config=$(jq -e --arg kafka "$COUNTERSIGN_KAFKA" --arg postgres "$COUNTERSIGN_POSTGRES_PORT" --arg mariadb "$COUNTERSIGN_MARIADB_PORT" '
    .config + { name, "database.hostname": "127.0.0.1" }
    | if ."connector.class" | test("Postgres") then ."database.port" = $postgres
      else ."database.port" = $mariadb | ."schema.history.internal.kafka.bootstrap.servers" = $kafka end
    | reduce $ARGS.positional[] as $pair (.;
        ($pair | capture("^(?<key>[^=]+)=(?<value>.*)$"; "s")) as { $key, $value }
        | if $value == "" then del(.[$key]) else .[$key] = $value end)
    ' "$file" --args "$@")
  name=$(jq -r .name <<<"$config")
  retry_rest PUT "/connectors/$name/config" "$config" >/dev/null
  echo "$name"
}

# Running is not yet streaming: what is written before the snapshot's end arrives as `r`. Only the log tells.
# streams NAME PREFIX: prints how often this worker saw the connector begin to stream; fails while it does not.
streams() {
  awk -v task="[task-thread-$1-0]" -v coordinator="-$2-change-event-source-coordinator]" '
    /WorkerInfo/ { streaming = count = 0 }
    index($0, task) && /Stopping down connector|Starting .*ConnectorTask/ { streaming = 0 }
    index($0, coordinator) && /Starting streaming/ { streaming = 1; count++ }
    END { print count + 0; exit !streaming }' "$dir/connect.log"
}

prefix_of() { retry_rest GET "/connectors/$1/config" | jq -r '."topic.prefix"'; }

wait_streaming() { # wait_streaming NAME [TIMES]
  local name=$1 times=${2:-1} status prefix count
  prefix=$(prefix_of "$name")
  local deadline=$((SECONDS + 90))
  while true; do
    status=$(rest GET "/connectors/$name/status" 2>/dev/null || true)
    if jq -e '[.connector, .tasks[]] | any(.state == "FAILED")' <<<"${status:-null}" >/dev/null 2>&1; then
      jq -r '[.connector, .tasks[]][] | select(.state == "FAILED").trace' <<<"$status" >&2
      return 1
    fi
    if jq -e '.tasks | length > 0 and all(.state == "RUNNING")' <<<"${status:-null}" >/dev/null 2>&1 &&
      count=$(streams "$name" "$prefix") && [ "$count" -ge "$times" ]; then return; fi
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "connect: $name does not stream: ${status:-no status} (log: $dir/connect.log)" >&2
      return 1
    fi
    sleep 0.2
  done
}

delete() { # only the offsets of a stopped connector can be deleted
  local name=$1
  retry_rest PUT "/connectors/$name/stop" >/dev/null
  stopped() { rest GET "/connectors/$name/status" | jq -e '.connector.state == "STOPPED" and .tasks == []' >/dev/null; }
  wait_for 30 "$name to stop" stopped
  retry_rest DELETE "/connectors/$name/offsets" >/dev/null
  retry_rest DELETE "/connectors/$name" >/dev/null
}

case "${1:-}:$#" in
register:1 | register:0 | *:0) usage ;;
register:*) shift; register "$@" ;;
wait:2) wait_streaming "$2" ;;
checkpoint:2)
  times=$(streams "$2" "$(prefix_of "$2")" || true)
  retry_rest POST "/connectors/$2/restart?includeTasks=true" >/dev/null
  wait_streaming "$2" $((times + 1)) # the answer comes when the restart is planned, not when it is done
  ;;
delete:2) delete "$2" ;;
kill:1)
  kill -KILL "$(pid_of connect)"
  dead() { ! alive connect; }
  wait_for 10 "the worker to be gone" dead
  ;;
start:1) "$here/up.sh" all ;;
*) usage ;;
esac
