#!/usr/bin/env bash
# Kafka topics of the stack.
#   topics.sh list
#   topics.sh delete REGEX    deletes those whose whole name matches
#   topics.sh lines TOPIC...  prints their records as record lines, by partition and offset
#   topics.sh count TOPIC     how many records can be read from it; 0 if there is none of that name
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
# shellcheck source=tests/stack/env.sh
. "$here/env.sh"

usage() { sed -n '2,6p' "$0"; exit 2; }

list() { kcat -b "$COUNTERSIGN_KAFKA" -L -J | jq -r '.topics[].topic' | sort; }
read_all() { timeout 30 kcat -b "$COUNTERSIGN_KAFKA" -C -q -e -J -t "$1"; }

case "${1:-}:$#" in
list:1) list ;;
delete:2)
  if ! list | grep -qxE "$2"; then exit 0; fi
  java -XX:TieredStopAtLevel=1 -Dorg.slf4j.simpleLogger.defaultLogLevel=error -cp "$COUNTERSIGN_STACK_CACHE/kafka/*" \
    org.apache.kafka.tools.TopicCommand --bootstrap-server "$COUNTERSIGN_KAFKA" --delete --topic "$2"
  for _ in $(seq 50); do # deletion is asked for, not done, when the command ends
    if ! list | grep -qxE "$2"; then exit 0; fi
    sleep 0.2
  done
  echo "topics: $2 is still there" >&2
  exit 1
  ;;
lines:1 | lines:0) usage ;;
lines:*)
  shift
  for topic; do
    # kcat prints headers as one flat list; what is not UTF-8 it cannot show, and none of this is.
    read_all "$topic" | jq -cs 'sort_by(.partition, .offset)[]
      | { topic, partition, offset, timestamp: .ts,
          headers: ((.headers // []) | [range(0; length; 2) as $i | [.[$i], .[$i + 1]]]),
          key, value: .payload }'
  done
  ;;
count:2) { read_all "$2" 2>/dev/null || true; } | wc -l ;;
*) usage ;;
esac
