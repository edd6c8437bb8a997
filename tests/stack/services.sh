# How each service of the stack is started and how it is asked whether it answers. Sourced, after env.sh.
# shellcheck shell=bash

# shellcheck disable=SC2034 # read by the scripts that source this
DATABASES=(postgres mariadb redis)
# shellcheck disable=SC2034
ALL=("${DATABASES[@]}" kafka registry connect)
dir=$COUNTERSIGN_STACK_DIR
PATH=$PATH:/usr/sbin

postgres_bin() { # the newest of the installed versions
  local initdb
  initdb=$(compgen -G '/usr/lib/postgresql/*/bin/initdb' | sort -V | tail -1)
  echo "${initdb%/initdb}"
}

# PostgreSQL refuses root; started by root, the servers run as the users their packages made.
as_postgres=()
as_mysql=()
if [ "$(id -u)" = 0 ]; then
  as_postgres=(setpriv --reuid=postgres --regid=postgres --init-groups)
  as_mysql=(setpriv --reuid=mysql --regid=mysql --init-groups)
fi

own() { # own USER FOLDER: makes a folder that this user may write
  mkdir -p "$2"
  if [ "$(id -u)" = 0 ]; then chown "$1:" "$2"; fi
}

# When a process began, in clock ticks since boot: with its id it names a process beyond doubt.
began_at() { sed 's/.*) //' "/proc/$1/stat" 2>/dev/null | cut -d ' ' -f 20; }

# launch NAME COMMAND...: in the background, in a session of its own, with a log and a pid file.
launch() {
  local name=$1
  shift
  setsid "$@" </dev/null >>"$dir/$name.log" 2>&1 &
  echo "$! $(began_at $!)" >"$dir/$name.pid"
}

# pid_of NAME: the process that launch started, if it still runs; an id that was given to another one does not count.
pid_of() {
  local pid began
  read -r pid began 2>/dev/null <"$dir/$1.pid" && [ "$(began_at "$pid")" = "$began" ] && echo "$pid"
}
alive() { pid_of "$1" >/dev/null; }

java_log_options=(-Dorg.slf4j.simpleLogger.showDateTime=true '-Dorg.slf4j.simpleLogger.dateTimeFormat=HH:mm:ss.SSS'
  -Dorg.slf4j.simpleLogger.log.org.reflections=error)

start_postgres() {
  local bin
  bin=$(postgres_bin)
  own postgres "$dir/postgres"
  if [ ! -e "$dir/postgres/PG_VERSION" ]; then
    echo countersign >"$dir/postgres.password"
    chmod 644 "$dir/postgres.password"
    "${as_postgres[@]}" "$bin/initdb" -D "$dir/postgres" -U countersign --pwfile="$dir/postgres.password" \
      --auth=scram-sha-256 -E UTF8 --locale=C.UTF-8 >"$dir/postgres.log" 2>&1
  fi
  # The database's own data is as safe as in production (fsync stays on): the crash tests rest on it.
  launch postgres "${as_postgres[@]}" "$bin/postgres" -D "$dir/postgres" \
    -c listen_addresses=127.0.0.1 -c port="$COUNTERSIGN_POSTGRES_PORT" -c unix_socket_directories= \
    -c wal_level=logical -c max_connections=200 -c max_replication_slots=30 -c max_wal_senders=30 \
    -c max_slot_wal_keep_size=8GB
}
answers_postgres() { psql "$COUNTERSIGN_SHOP_POSTGRES_URL" -XAtc 'SELECT 1' >/dev/null 2>&1; }

# postgres_databases: the databases and the source user; asked once Postgres listens.
postgres_databases() {
  local name admin=${COUNTERSIGN_POSTGRES_URL%/*}/postgres
  psql "$admin" -XAtc 'SELECT 1' >/dev/null 2>&1 || return 1
  for name in countersign shop; do
    if [ -z "$(psql "$admin" -XAtc "SELECT 1 FROM pg_database WHERE datname = '$name'")" ]; then
      psql "$admin" -Xqc "CREATE DATABASE $name"
    fi
  done
  # A member of the tables' owner may publish them; it needs no more than that and REPLICATION.
  psql "$admin" -Xq >/dev/null <<'SQL'
DO $$ BEGIN
  IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'debezium') THEN
    CREATE ROLE debezium LOGIN REPLICATION PASSWORD 'debezium';
    GRANT countersign TO debezium;
  END IF;
END $$;
SQL
}

start_mariadb() {
  own mysql "$dir/mariadb"
  # A server that starts removes temporary tables of all others from a folder that they share, and those crash.
  own mysql "$dir/mariadb-tmp"
  if [ ! -d "$dir/mariadb/mysql" ]; then
    TMPDIR=$dir/mariadb-tmp "${as_mysql[@]}" mariadb-install-db --no-defaults --datadir="$dir/mariadb" --auth-root-authentication-method=normal \
      --skip-test-db >"$dir/mariadb.log" 2>&1
  fi
  # Run at every start, before the first connection. The anonymous users of a fresh MariaDB would shadow
  # 'countersign'@'%' for connections from localhost.
  cat >"$dir/mariadb.init.sql" <<'SQL'
DELETE FROM mysql.global_priv WHERE User = '';
FLUSH PRIVILEGES;
CREATE DATABASE IF NOT EXISTS countersign;
CREATE DATABASE IF NOT EXISTS shop;
CREATE USER IF NOT EXISTS 'countersign'@'%' IDENTIFIED BY 'countersign';
GRANT ALL PRIVILEGES ON *.* TO 'countersign'@'%' WITH GRANT OPTION;
CREATE USER IF NOT EXISTS 'debezium'@'%' IDENTIFIED BY 'debezium';
GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'debezium'@'%';
SQL
  chmod 644 "$dir/mariadb.init.sql"
  launch mariadb "${as_mysql[@]}" mariadbd --no-defaults --datadir="$dir/mariadb" --init-file="$dir/mariadb.init.sql" \
    --bind-address=127.0.0.1 --port="$COUNTERSIGN_MARIADB_PORT" --socket="$dir/mariadb/mariadb.sock" \
    --pid-file="$dir/mariadb/mariadb.pid" --tmpdir="$dir/mariadb-tmp" --skip-name-resolve --max-connections=200 \
    --character-set-server=utf8mb4 --server-id=1 --log-bin=binlog --binlog-format=ROW --binlog-row-image=FULL \
    --gtid-domain-id=0 --gtid-strict-mode=ON
}
answers_mariadb() {
  mariadb --no-defaults -h 127.0.0.1 -P "$COUNTERSIGN_MARIADB_PORT" -u countersign -pcountersign shop -e 'SELECT 1' >/dev/null 2>&1
}

start_redis() {
  launch redis redis-server --port "$COUNTERSIGN_REDIS_PORT" --bind 127.0.0.1 --save '' --appendonly no --dir "$dir"
}
answers_redis() { [ "$(redis-cli -u "$COUNTERSIGN_REDIS_URL" ping 2>/dev/null)" = PONG ]; }

start_kafka() {
  local classpath="$COUNTERSIGN_STACK_CACHE/kafka/*"
  cat >"$dir/kafka.properties" <<E
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:$COUNTERSIGN_KAFKA_CONTROLLER_PORT
listeners=PLAINTEXT://127.0.0.1:$COUNTERSIGN_KAFKA_PORT,CONTROLLER://127.0.0.1:$COUNTERSIGN_KAFKA_CONTROLLER_PORT
advertised.listeners=PLAINTEXT://127.0.0.1:$COUNTERSIGN_KAFKA_PORT
controller.listener.names=CONTROLLER
log.dirs=$dir/kafka
offsets.topic.replication.factor=1
offsets.topic.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
E
  if [ ! -e "$dir/kafka/meta.properties" ]; then
    java -XX:TieredStopAtLevel=1 -cp "$classpath" kafka.tools.StorageTool format -t 'Y291bnRlcnNpZ24tdGVzdA' -c "$dir/kafka.properties" \
      >"$dir/kafka.log" 2>&1
  fi
  launch kafka java -Xms512m -Xmx1g "${java_log_options[@]}" -cp "$classpath" kafka.Kafka "$dir/kafka.properties"
}
answers_kafka() { kcat -b "$COUNTERSIGN_KAFKA" -L -m 2 >/dev/null 2>&1; }

start_registry() { # in memory: a restart forgets the schemas
  local jar
  jar=$(compgen -G "$COUNTERSIGN_STACK_CACHE/registry/*-runner.jar")
  launch registry java -Xmx384m -XX:TieredStopAtLevel=1 -Dquarkus.http.host=127.0.0.1 \
    -Dquarkus.http.port="$COUNTERSIGN_REGISTRY_PORT" -jar "$jar"
}
answers_registry() { curl -fsS -m 2 -o /dev/null "$COUNTERSIGN_REGISTRY_URL/apis/ccompat/v7/subjects" 2>/dev/null; }

start_connect() {
  # A killed worker is not waited for (scheduled.rebalance.max.delay.ms is five minutes by default), and
  # its place in the group is free after the shortest session time-out that the broker allows.
  cat >"$dir/connect.properties" <<E
bootstrap.servers=$COUNTERSIGN_KAFKA
group.id=countersign-connect
listeners=$COUNTERSIGN_CONNECT_URL
plugin.path=$COUNTERSIGN_STACK_CACHE/plugins
plugin.discovery=service_load
key.converter=org.apache.kafka.connect.json.JsonConverter
value.converter=org.apache.kafka.connect.json.JsonConverter
offset.flush.interval.ms=$COUNTERSIGN_CONNECT_FLUSH_MS
offset.storage.topic=connect.offsets
offset.storage.replication.factor=1
offset.storage.partitions=1
config.storage.topic=connect.configs
config.storage.replication.factor=1
status.storage.topic=connect.status
status.storage.replication.factor=1
status.storage.partitions=1
scheduled.rebalance.max.delay.ms=0
session.timeout.ms=6000
heartbeat.interval.ms=1500
connector.client.config.override.policy=All
E
  launch connect java -Xms256m -Xmx1g "${java_log_options[@]}" -cp "$COUNTERSIGN_STACK_CACHE/kafka/*" \
    org.apache.kafka.connect.cli.ConnectDistributed "$dir/connect.properties"
}
answers_connect() { curl -fsS -m 2 -o /dev/null "$COUNTERSIGN_CONNECT_URL/connectors" 2>/dev/null; }

# wait_for SECONDS WHAT COMMAND...: until the command succeeds.
wait_for() {
  local deadline=$((SECONDS + $1)) what=$2
  shift 2
  until "$@"; do
    if [ "$SECONDS" -ge "$deadline" ]; then
      echo "stack: gave up waiting for $what" >&2
      return 1
    fi
    sleep 0.2
  done
}
