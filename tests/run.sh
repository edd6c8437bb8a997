#!/usr/bin/env bash
# Installs what is missing, starts the services on loopback ports of their own, passes all tests, and stops what it
# started. On Debian or Ubuntu, as root (packages; PostgreSQL and MariaDB run as their own users).
#
#   tests/run.sh           everything (about 40 minutes on two cores from nothing, half of it compiling)
#   tests/run.sh quick     without Kafka, Connect and Debezium
set -euo pipefail
cd "$(dirname "$0")/.."
what=${1:-all}
case $what in
  all) services=all ;;
  quick) services=databases ;;
  *) echo "usage: tests/run.sh [all|quick]" >&2; exit 2 ;;
esac

step() { printf '\n== %s (%ss)\n' "$*" "$SECONDS"; }

step "what is needed"
tests/stack/install.sh "$services"
# shellcheck source=stack/env.sh
. tests/stack/env.sh

already=$(tests/stack/status.sh | grep -c ' up ' || true)
step "services"
tests/stack/up.sh "$services"
# Services that somebody else had started stay as they were.
if [ "$already" -eq 0 ]; then
  trap 'tests/stack/down.sh --purge' EXIT
fi

step "format and lints"
cargo fmt --check
cargo clippy --locked --all-targets --features failpoints -- -D warnings

step "unit tests, the models and the quick suite"
cargo test --locked --lib --bins --examples
cargo test --locked --test model
cargo test --locked --test it

step "the crash suite"
cargo test --locked --features failpoints --test crash

step "the demo"
summary=$(cargo run --locked --quiet -- demo --output json --dir "$(mktemp -d)")
echo "$summary"
jq -e '.consumed == .applied + .duplicate + .skipped + .rejected + .parked + .conflict and .consumed > 50' <<<"$summary"

if [ "$what" = all ]; then
  step "the real suite"
  cargo test --locked --test real -- --test-threads=1
  step "the daemon beside the ceiling of its database"
  # As the tests are built: everything once more with optimisation takes longer than all of them.
  cargo test --locked --bench contest -- short
fi
step "all passed"
