#!/usr/bin/env bash
# Stops what up.sh started, and only that: the processes named by its pid files.
#   down.sh           keeps the data
#   down.sh --purge   deletes the data too
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/stack/env.sh
. ./env.sh
# shellcheck source=tests/stack/services.sh
. ./services.sh

case ${1:-} in '' | --purge) ;; *) sed -n '2,4p' "$0"; exit 2 ;; esac

gone() { ! alive "$1"; }
for name in connect registry kafka redis mariadb postgres; do
  if alive "$name"; then
    signal=TERM
    if [ "$name" = postgres ]; then signal=INT; fi # "fast": does not wait for its clients to leave
    kill -"$signal" "$(pid_of "$name")"
    if ! wait_for 30 "$name to stop; killing it" gone "$name"; then kill -KILL "$(pid_of "$name")"; fi
  fi
  rm -f "$dir/$name.pid"
done
if [ "${1:-}" = --purge ]; then rm -rf "$dir"; fi
