#!/usr/bin/env bash
# Installs what the test stack needs and is missing: Debian packages by apt, jars by Maven.
#   install.sh databases   PostgreSQL, MariaDB, Redis and a C compiler: enough for the quick tests
#   install.sh all         those, and Java, Kafka, Connect, Debezium, Apicurio, kcat
#   install.sh bench       those, and what the daemon is measured beside: Debezium's JDBC sink, Bento
# Run again it only looks; that takes well under a second.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"
# shellcheck source=tests/stack/env.sh
. ./env.sh

KAFKA=4.3.1
DEBEZIUM_POSTGRES=3.6.1.Final
DEBEZIUM_MARIADB=3.5.0.Final
DEBEZIUM_JDBC=3.6.0.Final
APICURIO=2.6.13.Final
BENTO=v1.8.2

what=${1:-}
case $what in databases | all | bench) ;; *) sed -n '2,6p' "$0"; exit 2 ;; esac

need=() # Debian packages
command_or_package() { command -v "$1" >/dev/null || need+=("$2"); }

PATH=$PATH:/usr/sbin
command_or_package gcc gcc # librdkafka and its OpenSSL are built from source
command_or_package g++ g++
command_or_package make make
command_or_package perl perl
command_or_package pkg-config pkg-config
command_or_package python3 python3
command_or_package curl curl
command_or_package jq jq
command_or_package mariadbd mariadb-server
command_or_package mariadb mariadb-client
command_or_package redis-server redis-server
command_or_package psql postgresql-client
command_or_package pgbouncer pgbouncer
compgen -G '/usr/lib/postgresql/*/bin/initdb' >/dev/null || need+=(postgresql)
if [ "$what" != databases ]; then
  command_or_package java default-jre-headless
  command_or_package mvn maven
  command_or_package kcat kcat
fi
if [ "$what" = bench ]; then command_or_package go golang-go; fi

if [ ${#need[@]} -gt 0 ]; then
  echo "install: apt-get install ${need[*]}"
  [ "$(id -u)" = 0 ] || { echo "install: needs root for apt; as root: apt-get install ${need[*]}" >&2; exit 1; }
  # The packages would start servers on the default ports; while this file says 101 they do not.
  if [ ! -e /usr/sbin/policy-rc.d ]; then
    printf '#!/bin/sh\nexit 101\n' >/usr/sbin/policy-rc.d
    chmod +x /usr/sbin/policy-rc.d
    trap 'rm -f /usr/sbin/policy-rc.d' EXIT
  fi
  export DEBIAN_FRONTEND=noninteractive
  apt-get update -qq
  apt-get install -y -qq --no-install-recommends "${need[@]}" >/dev/null
fi
[ "$what" != databases ] || exit 0

mkdir -p "$COUNTERSIGN_STACK_CACHE"
cd "$COUNTERSIGN_STACK_CACHE"

# maven FOLDER alone|closure GROUP:ARTIFACT:VERSION[:TYPE[:CLASSIFIER]]... puts the artifacts (and, with
# `closure`, what they depend on) into FOLDER. A stamp with the list makes it happen once.
maven() {
  local folder=$1 depth=$2 g a v t c coordinate exclude='' stamp
  shift 2
  stamp="$depth $*"
  if [ "$(cat "$folder.done" 2>/dev/null)" = "$stamp" ]; then return; fi
  echo "install: maven $*"
  rm -rf "$folder" "$folder.done"
  mkdir -p "$folder"
  if [ "$depth" = alone ]; then
    exclude='<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>'
  fi
  {
    echo '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
    echo '<groupId>countersign</groupId><artifactId>test-stack</artifactId><version>1</version><dependencies>'
    for coordinate; do
      IFS=: read -r g a v t c <<<"$coordinate"
      echo "<dependency><groupId>$g</groupId><artifactId>$a</artifactId><version>$v</version>" \
        "<type>${t:-jar}</type>${c:+<classifier>$c</classifier>}$exclude</dependency>"
    done
    echo '</dependencies></project>'
  } >"$folder.pom.xml"
  mvn -q -B -Dstyle.color=never -f "$folder.pom.xml" dependency:copy-dependencies -DincludeScope=runtime "-DoutputDirectory=$PWD/$folder"
  echo "$stamp" >"$folder.done"
}

# unpack ARCHIVE FOLDER: FOLDER gets the archive's content; once per archive.
unpack() {
  if [ "$(cat "$2/.from" 2>/dev/null)" = "$1" ]; then return; fi
  rm -rf "$2"
  mkdir -p "$2"
  tar -xzf "$1" -C "$2"
  echo "$1" >"$2/.from"
}

maven kafka closure \
  "org.apache.kafka:kafka_2.13:$KAFKA" "org.apache.kafka:kafka-tools:$KAFKA" "org.apache.kafka:connect-runtime:$KAFKA" \
  "org.apache.kafka:connect-json:$KAFKA" "org.apache.kafka:connect-transforms:$KAFKA" org.slf4j:slf4j-simple:1.7.36
maven archives alone \
  "io.debezium:debezium-connector-postgres:$DEBEZIUM_POSTGRES:tar.gz:plugin" \
  "io.debezium:debezium-connector-mariadb:$DEBEZIUM_MARIADB:tar.gz:plugin" \
  "io.apicurio:apicurio-registry-app:$APICURIO:tar.gz:all"
mkdir -p plugins
maven plugins/apicurio-converter closure \
  "io.apicurio:apicurio-registry-utils-converter:$APICURIO" "io.apicurio:apicurio-registry-serdes-avro-serde:$APICURIO"
# What Connect itself brings must not be in a plugin folder a second time.
rm -f plugins/apicurio-converter/{kafka-clients,connect-api,connect-json,slf4j-api}-*.jar
# Apicurio's converter lacks the manifest by which Connect finds a plugin without reading every class of
# every jar, which takes it nine seconds at each start (services.sh says plugin.discovery=service_load).
if [ ! -e plugins/apicurio-converter/manifest.jar ]; then
  python3 -c '
import zipfile
with zipfile.ZipFile("plugins/apicurio-converter/manifest.jar", "w") as jar:
    jar.writestr("META-INF/services/org.apache.kafka.connect.storage.Converter", "io.apicurio.registry.utils.converter.AvroConverter\n")'
fi
unpack "archives/debezium-connector-postgres-$DEBEZIUM_POSTGRES-plugin.tar.gz" plugins/debezium-postgres
unpack "archives/debezium-connector-mariadb-$DEBEZIUM_MARIADB-plugin.tar.gz" plugins/debezium-mariadb
unpack "archives/apicurio-registry-app-$APICURIO-all.tar.gz" registry
[ "$what" = bench ] || exit 0

maven bench alone "io.debezium:debezium-connector-jdbc:$DEBEZIUM_JDBC:tar.gz:plugin"
unpack "bench/debezium-connector-jdbc-$DEBEZIUM_JDBC-plugin.tar.gz" plugins/debezium-jdbc
if [ ! -x "bento-$BENTO" ]; then
  echo "install: bento $BENTO"
  rm -rf bento-build
  mkdir bento-build
  # With the components that it is measured with; the whole takes several times as long.
  {
    printf 'package main\n\nimport (\n\t"context"\n\n'
    printf '\t_ "github.com/warpstreamlabs/bento/public/components/%s"\n' io kafka pure redis sql
    printf '\t"github.com/warpstreamlabs/bento/public/service"\n)\n\nfunc main() { service.RunCLI(context.Background()) }\n'
  } >bento-build/main.go
  (
    cd bento-build
    go mod init bench
    go get "github.com/warpstreamlabs/bento@$BENTO"
    go mod tidy
    go build -ldflags "-X main.Version=$BENTO" -o "../bento-$BENTO" .
  )
  rm -rf bento-build
fi
ln -sf "bento-$BENTO" bento
