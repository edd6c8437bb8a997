# Where the test stack listens and keeps its files. Sourced by the scripts beside it, and by anyone who
# wants the addresses: `. tests/stack/env.sh`. Everything here can be overridden from the environment.
# shellcheck shell=bash

: "${COUNTERSIGN_STACK_DIR:=/tmp/countersign-stack}"                              # data, logs, pid files: may be thrown away
: "${COUNTERSIGN_STACK_CACHE:=${HOME:-/root}/.cache/countersign-stack}"           # jars: worth keeping

# Ports of its own, so that a developer's own services are left alone. All on loopback.
: "${COUNTERSIGN_POSTGRES_PORT:=15432}"
: "${COUNTERSIGN_MARIADB_PORT:=13306}"
: "${COUNTERSIGN_REDIS_PORT:=16379}"
: "${COUNTERSIGN_KAFKA_PORT:=19092}"
: "${COUNTERSIGN_KAFKA_CONTROLLER_PORT:=19093}"
: "${COUNTERSIGN_CONNECT_PORT:=18083}"
: "${COUNTERSIGN_REGISTRY_PORT:=18081}"

# How long Connect keeps source offsets in memory. 60 s is its default, and the tests live on it: a worker
# killed within that time emits everything since the last flush again, at new Kafka offsets.
: "${COUNTERSIGN_CONNECT_FLUSH_MS:=60000}"

: "${COUNTERSIGN_POSTGRES_URL:=postgres://countersign:countersign@127.0.0.1:$COUNTERSIGN_POSTGRES_PORT/countersign}"
: "${COUNTERSIGN_MARIADB_URL:=mariadb://countersign:countersign@127.0.0.1:$COUNTERSIGN_MARIADB_PORT/countersign}"
: "${COUNTERSIGN_SHOP_POSTGRES_URL:=postgres://countersign:countersign@127.0.0.1:$COUNTERSIGN_POSTGRES_PORT/shop}"
: "${COUNTERSIGN_SHOP_MARIADB_URL:=mariadb://countersign:countersign@127.0.0.1:$COUNTERSIGN_MARIADB_PORT/shop}"
: "${COUNTERSIGN_REDIS_URL:=redis://127.0.0.1:$COUNTERSIGN_REDIS_PORT}"
: "${COUNTERSIGN_KAFKA:=127.0.0.1:$COUNTERSIGN_KAFKA_PORT}"
: "${COUNTERSIGN_CONNECT_URL:=http://127.0.0.1:$COUNTERSIGN_CONNECT_PORT}"
: "${COUNTERSIGN_REGISTRY_URL:=http://127.0.0.1:$COUNTERSIGN_REGISTRY_PORT}"

export COUNTERSIGN_STACK_DIR COUNTERSIGN_STACK_CACHE COUNTERSIGN_CONNECT_FLUSH_MS \
  COUNTERSIGN_POSTGRES_PORT COUNTERSIGN_MARIADB_PORT COUNTERSIGN_REDIS_PORT COUNTERSIGN_KAFKA_PORT \
  COUNTERSIGN_KAFKA_CONTROLLER_PORT COUNTERSIGN_CONNECT_PORT COUNTERSIGN_REGISTRY_PORT \
  COUNTERSIGN_POSTGRES_URL COUNTERSIGN_MARIADB_URL COUNTERSIGN_SHOP_POSTGRES_URL COUNTERSIGN_SHOP_MARIADB_URL \
  COUNTERSIGN_REDIS_URL COUNTERSIGN_KAFKA COUNTERSIGN_CONNECT_URL COUNTERSIGN_REGISTRY_URL
