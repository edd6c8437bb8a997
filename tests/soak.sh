#!/usr/bin/env bash
# Load with random faults for so many seconds (30 minutes by default), on database servers and a Redis of its own. Every
# two minutes, and at the end, nothing may be lost and nothing be there twice; the counts are printed.
#
#   tests/soak.sh [SECONDS]
set -euo pipefail
cd "$(dirname "$0")/.."
# shellcheck source=stack/env.sh
. tests/stack/env.sh
COUNTERSIGN_SOAK_SECONDS=${1:-1800} exec cargo test --locked --features failpoints --test crash -- --ignored --nocapture soak
