#!/usr/bin/env bash
# Mirrors a table with every column type from MariaDB and PostgreSQL (with either replica identity) into PostgreSQL,
# MariaDB and SQLite, in JSON with schema, Avro in Confluent framing and in both of Apicurio's, and compares each column.
# The stack must be up: tests/stack/up.sh all. Some minutes; tests/run.sh does a part of it.
#   tests/matrix.sh [FORMATS [SOURCES]]   comma-separated; formats json confluent headers eight, sources mariadb postgres
#                                         postgres_full; all by default
set -euo pipefail
cd "$(dirname "$0")/.."
export MATRIX_FORMATS=${1:-all} MATRIX_SOURCES=${2:-all}
exec cargo test --locked --test real -- --ignored --exact --nocapture matrix::matrix
