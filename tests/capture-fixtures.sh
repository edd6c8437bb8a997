#!/usr/bin/env bash
# Takes tests/fixtures/*.jsonl again from real connectors: run it after `tests/stack/up.sh all`. It needs some minutes,
# drops and makes the tables of the source databases `shop`, and deletes the topics and connectors it uses.
# Written are record lines, one Kafka record each, by topic, partition and offset (demo.jsonl: in the order of time).
#   tests/capture-fixtures.sh [PART...]   shop, demo, formats, repeated; all by default
# Other folders than tests/fixtures by COUNTERSIGN_FIXTURES, another binary for `capture` and `inspect` than the one that
# cargo builds by COUNTERSIGN_BINARY.
#
# shop:
#   mariadb-orders            debezium/mariadb-source.json as it is: JSON with schema. Two snapshot rows (r), creates,
#                             updates, a change of primary key (delete, tombstone, create), a delete with its tombstone,
#                             and the same changes once more at new offsets, after Connect was killed
#   mariadb-orders-plain      the same table, JSON without schema, with transaction metadata; also emitted twice
#   mariadb-orders-flat       the same, flattened by ExtractNewRecordState with __op, __table, __source_* fields and
#                             deletes rewritten to __deleted="true" + tombstone; also emitted twice
#   postgres-orders, -plain, -flat   the same from PostgreSQL (REPLICA IDENTITY FULL); the flat one has no metadata
#                             fields at all and its deletes are tombstones only
#   postgres-documents        a table with the default replica identity and a big text: an update that leaves it
#                             alone carries __debezium_unavailable_value; its before holds nothing but the key
#   mariadb-outbox, postgres-outbox  payment events as the EventRouter writes them, also emitted twice. The same id with
#                             two amounts, an amount that is no number, a payload without orderId, one that is no JSON
#                             object, a unicode one
#   mariadb-heartbeat, postgres-heartbeat, mariadb-transaction, postgres-transaction, mariadb-schema-change,
#   postgres-message          the topics that Debezium writes beside the tables; the last has pg_logical_emit_message,
#                             once inside a transaction and once outside
# demo:
#   demo                      one run of a small shop: topics shop.orders (JSON with schema) and shop.payment.events.
#                             Ids 00000000-0000-7000-8000-0000000000NN. Payments 01-10 come twice: Connect was killed
#                             and emitted them again. After that once each: 11 and 12 good; 03 again with another
#                             amount (conflict); 13 without orderId (poison); 14 of 900.00 from account carol, who
#                             has 20.00 (rejection). With balances that cover all the others, its 57 records are
#                             29 applied, 23 duplicates, 2 skipped (tombstones), 1 each rejected, parked, conflict;
#                             the mirror ends with 12 orders, the ledger with 12 payments
# formats: the same changes by connectors that differ in their converters alone (-schema: JSON with schema; -plain: JSON
# without; -confluent, -headers, -eight: Avro with a 4-byte id, with ids in headers, with an 8-byte id), from each database:
#   mariadb-types-*, postgres-types-*    a table with every column type (tests/types): creates, one of them of NULLs, an
#                             update of every column, a change of primary key, a delete, a truncate
#   mariadb-shop-*, postgres-shop-*      a table of orders: creates, an update, a change of primary key, a delete
#   mariadb-hyphen            orders by a connector whose topic.prefix is `my-app`, in Avro with a 4-byte id and without
#                             schema.name.adjustment.mode: its namespaces are no legal Avro
#   registry.json             {"confluent": {id: schema}, "global": {id: schema}}: the schemas that all of these name
#   *.golden.jsonl            what `inspect` prints of mariadb-types-schema and postgres-types-schema, and so of the others
# repeated:
#   mariadb-repeated, postgres-repeated  all records of a table with 3,001 changes (1,001 creates, 660 updates, 340 times two
#                             of one row in a transaction, 160 changes of primary key, each of which is two, and 340
#                             deletes), with Connect killed twice in the middle
# shellcheck disable=SC2016 # ${routedByValue} and $1 are for Kafka Connect
set -euo pipefail
here=$(dirname "$(realpath "${BASH_SOURCE[0]}")")
stack=$here/stack
# shellcheck source=tests/stack/env.sh
. "$stack/env.sh"
out=${COUNTERSIGN_FIXTURES:-$here/fixtures}
mkdir -p "$out"
countersign() {
  if [ -n "${COUNTERSIGN_BINARY:-}" ]; then "$COUNTERSIGN_BINARY" "$@"; else
    cargo run --locked --quiet --manifest-path "$here/../Cargo.toml" -- "$@"
  fi
}

connectors=()
mariadb() { command mariadb --no-defaults -h 127.0.0.1 -P "$COUNTERSIGN_MARIADB_PORT" -u countersign -pcountersign --default-character-set=utf8mb4 shop "$@"; }
postgres() { psql "$COUNTERSIGN_SHOP_POSTGRES_URL" -XqAt -v ON_ERROR_STOP=1 "$@" >/dev/null; }

register() { # register FILE NAME [KEY=VALUE...]: with a log position and topics of its own
  local file=$1 name=$2
  shift 2
  "$stack/connect.sh" register "$here/../debezium/$file.json" name="capture-$name" topic.prefix="$name" \
    heartbeat.interval.ms=1000 "$@" >/dev/null
  connectors+=("capture-$name")
}
mariadb_connector() {
  register "$1" "$2" database.server.id=$((5450 + ${#connectors[@]})) schema.history.internal.kafka.topic="schema-history.$2" "${@:3}"
}
postgres_connector() { register "$1" "$2" slot.name="capture_${2//-/_}" publication.name="capture_${2//-/_}" "${@:3}"; }

each() { for connector in "${connectors[@]}"; do "$stack/connect.sh" "$1" "$connector"; done; }

# Nothing of an earlier run may show in this one: neither rows, nor topics, nor replication slots.
start_over() {
  for connector in $(curl -fsS "$COUNTERSIGN_CONNECT_URL/connectors" | jq -r '.[] | select(startswith("capture-"))'); do
    "$stack/connect.sh" delete "$connector"
  done
  connectors=()
  mariadb -e 'DROP TABLE IF EXISTS orders, outbox, types_all, repeated'
  postgres -c "SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name LIKE 'capture\_%'" \
    -c 'SET client_min_messages = warning' -c 'DROP TABLE IF EXISTS orders, outbox, documents, types_all, repeated' \
    -c 'DROP TYPE IF EXISTS mood' -c 'DROP DOMAIN IF EXISTS price, word' \
    -c "DO \$\$ DECLARE p name; BEGIN
          FOR p IN SELECT pubname FROM pg_publication WHERE pubname LIKE 'capture\_%' LOOP EXECUTE format('DROP PUBLICATION %I', p); END LOOP;
        END \$\$"
  "$stack/topics.sh" delete '(__debezium-heartbeat\.|schema-history\.)?(mariadb|postgres|shop|demo|my-app)([-.].*)?'
}

counts() { # counts N TOPIC...: each topic holds N records
  local n=$1 topic
  shift
  for topic; do [ "$("$stack/topics.sh" count "$topic")" -eq "$n" ] || return 1; done
}
until_counts() {
  for _ in $(seq 60); do
    if counts "$@"; then return; fi
    sleep 0.5
  done
  for topic in "${@:2}"; do echo "capture: $topic has $("$stack/topics.sh" count "$topic") records, expected $1" >&2; done
  return 1
}

emit_again() {
  "$stack/connect.sh" kill
  "$stack/connect.sh" start >/dev/null
  each wait
}

save() { # save FILE TOPIC...: topics as record lines
  local file=$1
  shift
  "$stack/topics.sh" lines "$@" >"$out/$file.jsonl"
}

capture_everything() {
  start_over
  mariadb <<'SQL'
CREATE TABLE orders (
  id         BIGINT PRIMARY KEY,
  account    VARCHAR(20) NOT NULL,
  status     ENUM('new', 'paid', 'sent') NOT NULL,
  amount     DECIMAL(12,2) NOT NULL,
  weight     DOUBLE,
  express    BOOLEAN NOT NULL DEFAULT FALSE,
  total_ever BIGINT UNSIGNED,
  ordered_on DATE,
  placed_at  DATETIME(6),
  slot       TIME(6),
  updated_at TIMESTAMP(6) NULL,
  proof      VARBINARY(16),
  details    JSON
);
INSERT INTO orders VALUES
  (1, 'alice', 'new', 12.50, 1.5, TRUE, 18446744073709551615, '2026-11-29', '2026-11-29 12:34:56.123456', '08:30:00.5', '2026-11-29 12:34:56.123456', X'00ff10', '{"gift": true, "lines": [1, 2.50]}'),
  (2, 'bob', 'paid', -73.05, NULL, FALSE, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SQL
  postgres <<'SQL'
CREATE TABLE orders (
  id         bigint PRIMARY KEY,
  account    varchar(20) NOT NULL,
  status     text NOT NULL,
  amount     numeric(12,2) NOT NULL,
  weight     double precision,
  express    boolean NOT NULL DEFAULT FALSE,
  total_ever numeric,
  ordered_on date,
  placed_at  timestamp,
  slot       time,
  updated_at timestamptz,
  proof      bytea,
  details    jsonb
);
ALTER TABLE orders REPLICA IDENTITY FULL;
CREATE TABLE documents (id bigint PRIMARY KEY, title text, body text);
ALTER TABLE documents ALTER body SET STORAGE EXTERNAL;
INSERT INTO orders VALUES
  (1, 'alice', 'new', 12.50, 1.5, TRUE, 18446744073709551615, '2026-11-29', '2026-11-29 12:34:56.123456', '08:30:00.5', '2026-11-29 12:34:56.123456+00', '\x00ff10', '{"gift": true, "lines": [1, 2.50]}'),
  (2, 'bob', 'paid', -73.05, NULL, FALSE, NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SQL
  mariadb <"$here/../debezium/outbox.mariadb.sql"
  postgres -f "$here/../debezium/outbox.postgres.sql"
  # A service whose outbox does not insist on the id: the only way to have one id with two contents.
  mariadb -e 'ALTER TABLE outbox DROP PRIMARY KEY, ADD seq BIGINT AUTO_INCREMENT PRIMARY KEY'
  postgres -c 'ALTER TABLE outbox DROP CONSTRAINT outbox_pkey, ADD seq bigserial PRIMARY KEY'

  local unwrap=(transforms=unwrap transforms.unwrap.type=io.debezium.transforms.ExtractNewRecordState)
  local plain=(key.converter.schemas.enable=false value.converter.schemas.enable=false)
  mariadb_connector mariadb-source mariadb
  mariadb_connector mariadb-source mariadb-plain "${plain[@]}" provide.transaction.metadata=true
  mariadb_connector mariadb-source mariadb-flat "${plain[@]}" "${unwrap[@]}" \
    transforms.unwrap.delete.tombstone.handling.mode=rewrite-with-tombstone \
    transforms.unwrap.add.fields=op,table,source.ts_ms,source.gtid,source.file,source.pos,source.row
  mariadb_connector mariadb-outbox mariadb-outbox 'transforms.outbox.route.topic.replacement=mariadb.${routedByValue}.events'
  postgres_connector postgres-source postgres table.include.list=public.orders,public.documents
  postgres_connector postgres-source postgres-plain "${plain[@]}" provide.transaction.metadata=true
  postgres_connector postgres-source postgres-flat "${plain[@]}" "${unwrap[@]}"
  postgres_connector postgres-outbox postgres-outbox 'transforms.outbox.route.topic.replacement=postgres.${routedByValue}.events'
  each wait
  each checkpoint

  for database in mariadb postgres; do
    "$database" <<'SQL'
INSERT INTO orders (id, account, status, amount, details) VALUES (3, 'carol', 'new', 0.00, '{"näme": "Zoë €"}'), (4, 'alice', 'new', 9999999999.99, NULL);
INSERT INTO orders (id, account, status, amount, weight) VALUES (5, 'bob', 'new', 20.00, 1e-9);
UPDATE orders SET status = 'paid', amount = 13.00 WHERE id IN (1, 3);
UPDATE orders SET id = 44 WHERE id = 4;
DELETE FROM orders WHERE id = 2;
BEGIN;
UPDATE orders SET status = 'sent' WHERE id = 1;
UPDATE orders SET status = 'paid' WHERE id = 1;
COMMIT;
INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
  ('00000000-0000-7000-8000-000000000001', 'payment', 'o-1', 'PaymentRequested', '{"orderId": "o-1", "account": "alice", "amount": "12.50"}'),
  ('00000000-0000-7000-8000-000000000002', 'payment', 'o-2', 'PaymentRequested', '{"orderId": "o-2", "account": "bob", "amount": "7.00"}'),
  ('00000000-0000-7000-8000-000000000002', 'payment', 'o-2', 'PaymentRequested', '{"orderId": "o-2", "account": "bob", "amount": "7.01"}'),
  ('00000000-0000-7000-8000-000000000003', 'payment', 'o-3', 'PaymentRequested', '{"orderId": "o-3", "account": "bob", "amount": "not-a-number"}'),
  ('00000000-0000-7000-8000-000000000004', 'payment', 'o-4', 'PaymentRequested', '{"account": "bob", "amount": "1.00"}'),
  ('00000000-0000-7000-8000-000000000005', 'payment', 'o-5', 'PaymentCancelled', '"o-5"'),
  ('00000000-0000-7000-8000-000000000006', 'payment', 'o-6', 'PaymentRequested', '{"orderId": "o-6", "account": "Zoë", "amount": "1.00", "memo": "für €", "none": null, "lines": [{"sku": 1}, {"sku": 2}]}');
SQL
  done
  postgres <<'SQL'
INSERT INTO documents VALUES (1, 'terms', repeat('all rights reserved. ', 150));
UPDATE documents SET title = 'the terms' WHERE id = 1;
BEGIN; SELECT pg_logical_emit_message(true, 'audit', '{"orderId": "o-1", "by": "alice"}'); COMMIT;
SELECT pg_logical_emit_message(false, 'ping', 'not JSON');
DELETE FROM documents WHERE id = 1;
SQL

  # Two snapshot rows; then 3 creates, 2 updates, d + tombstone + c of the key change, d + tombstone, 2 updates.
  local orders=(mariadb.shop.orders mariadb-plain.shop.orders mariadb-flat.shop.orders postgres.public.orders postgres-plain.public.orders)
  until_counts 14 "${orders[@]}"
  until_counts 12 postgres-flat.public.orders # its deletes are one record, not two
  until_counts 7 mariadb.payment.events postgres.payment.events
  until_counts 4 postgres.public.documents
  until_counts 2 postgres.message
  emit_again
  until_counts 26 "${orders[@]}"
  until_counts 22 postgres-flat.public.orders
  until_counts 14 mariadb.payment.events postgres.payment.events

  save mariadb-orders mariadb.shop.orders
  save mariadb-orders-plain mariadb-plain.shop.orders
  save mariadb-orders-flat mariadb-flat.shop.orders
  save postgres-orders postgres.public.orders
  save postgres-orders-plain postgres-plain.public.orders
  save postgres-orders-flat postgres-flat.public.orders
  save postgres-documents postgres.public.documents
  save mariadb-outbox mariadb.payment.events
  save postgres-outbox postgres.payment.events
  save mariadb-transaction mariadb-plain.transaction
  save postgres-transaction postgres-plain.transaction
  save mariadb-schema-change mariadb
  save postgres-message postgres.message
  for kind in mariadb postgres; do # at most one a second; five of each are enough
    "$stack/topics.sh" lines "__debezium-heartbeat.$kind" "__debezium-heartbeat.$kind-plain" |
      jq -cs 'group_by(.topic)[] | .[:5][]' >"$out/$kind-heartbeat.jsonl"
  done
}

capture_demo() {
  start_over
  mariadb -e 'CREATE TABLE orders (id BIGINT PRIMARY KEY, account VARCHAR(20) NOT NULL, status VARCHAR(16) NOT NULL,
    amount DECIMAL(12,2) NOT NULL, placed_at DATETIME(3) NOT NULL)'
  mariadb <"$here/../debezium/outbox.mariadb.sql"
  mariadb -e 'ALTER TABLE outbox DROP PRIMARY KEY, ADD seq BIGINT AUTO_INCREMENT PRIMARY KEY'
  mariadb_connector mariadb-source demo transforms=name transforms.name.type=org.apache.kafka.connect.transforms.RegexRouter \
    'transforms.name.regex=demo\.(shop\..*)' 'transforms.name.replacement=$1'
  mariadb_connector mariadb-outbox demo-outbox
  each wait
  each checkpoint

  pay() { # pay ID ORDER ACCOUNT PAYLOAD, in the transaction of the order's change
    echo "INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload)
      VALUES ('00000000-0000-7000-8000-0000000000$1', 'payment', '$2', 'PaymentRequested', '$3');"
  }
  order() { # order NUMBER ACCOUNT AMOUNT
    echo "BEGIN; INSERT INTO orders VALUES ($1, '$2', 'new', $3, '2026-11-29 10:00:$1.250');"
    pay "$1" "order-$1" "{\"orderId\": \"order-$1\", \"account\": \"$2\", \"amount\": \"$3\"}"
    echo 'COMMIT; DO SLEEP(0.05);'
  }
  {
    order 01 alice 12.50
    order 02 bob 40.00
    order 03 carol 5.00
    order 04 alice 99.90
    order 05 dave 250.00
    echo "UPDATE orders SET status = 'paid' WHERE id = 1;"
    order 06 erin 1.00
    order 07 bob 19.99
    echo "UPDATE orders SET status = 'paid', amount = 39.00 WHERE id = 2;"
    order 08 alice 7.25
    echo 'DELETE FROM orders WHERE id = 6;'
    order 09 dave 0.01
    order 10 erin 60.00
  } | mariadb
  until_counts 14 shop.orders # 10 creates, 2 updates, a delete and its tombstone
  until_counts 10 shop.payment.events
  emit_again
  until_counts 28 shop.orders
  until_counts 20 shop.payment.events
  {
    order 11 bob 15.00
    pay 03 order-03 '{"orderId": "order-03", "account": "carol", "amount": "50.00"}'
    pay 13 order-13 '{"account": "alice", "amount": "3.00"}'
    order 14 carol 900.00
    echo "UPDATE orders SET status = 'refused' WHERE id = 14;"
    order 12 alice 30.00
  } | mariadb
  until_counts 32 shop.orders
  until_counts 25 shop.payment.events
  "$stack/topics.sh" lines shop.orders shop.payment.events | jq -cs 'sort_by(.timestamp)[]' >"$out/demo.jsonl"
  jq -es 'group_by([.topic, .partition]) | all(map(.offset) as $o | $o == ($o | sort))' "$out/demo.jsonl" >/dev/null ||
    { echo 'capture: time and offsets disagree in demo.jsonl' >&2; exit 1; }
}

# save_bytes FILE TOPIC: with what is not UTF-8 in base64
save_bytes() {
  countersign capture --brokers "$COUNTERSIGN_KAFKA" --topic "$2" --out "$out/$1"
}

# converters FORMAT: how a connector's keys and values are written
converters() {
  local part url="$COUNTERSIGN_REGISTRY_URL/apis/registry/v2"
  for part in key value; do
    case $1 in
      schema) continue ;;
      plain) echo "$part.converter.schemas.enable=false"; continue ;;
      confluent)
        echo "$part.converter.apicurio.registry.headers.enabled=false"
        echo "$part.converter.apicurio.registry.as-confluent=true"
        echo "$part.converter.apicurio.registry.use-id=contentId"
        ;;
      headers) ;;
      eight) echo "$part.converter.apicurio.registry.headers.enabled=false" ;;
    esac
    echo "$part.converter=io.apicurio.registry.utils.converter.AvroConverter"
    echo "$part.converter.schemas.enable="
    echo "$part.converter.apicurio.registry.url=$url"
    echo "$part.converter.apicurio.registry.auto-register=true"
  done
}

# The schemas that records in Avro name, by the kind of their ids.
save_registry() {
  python3 - "$COUNTERSIGN_REGISTRY_URL" "$out" <<'PY'
import base64, gzip, json, pathlib, sys, urllib.request
url, out = sys.argv[1], pathlib.Path(sys.argv[2])
found = {"confluent": set(), "global": set()}
raw = lambda part: base64.b64decode(part["base64"]) if isinstance(part, dict) else (part or "").encode()
for path in sorted(out.glob("*.jsonl*")):
    framing = "eight" if "-eight" in path.name else "confluent"
    if not any(word in path.name for word in ("-confluent", "-headers", "-eight", "-hyphen")):
        continue
    opened = gzip.open(path, "rt") if path.suffix == ".gz" else path.open()
    for line in opened:
        record = json.loads(line)
        if "-headers" in path.name:
            found["global"] |= {int.from_bytes(raw(v), "big") for n, v in record["headers"] if n.endswith(".globalId")}
            continue
        for part in (record["key"], record["value"]):
            if part is not None:
                framed = raw(part)
                assert framed[0] == 0, path
                if framing == "eight":
                    found["global"].add(int.from_bytes(framed[1:9], "big"))
                else:
                    found["confluent"].add(int.from_bytes(framed[1:5], "big"))
get = lambda path: json.load(urllib.request.urlopen(url + path))
registry = {
    "confluent": {str(id): json.loads(get(f"/apis/ccompat/v7/schemas/ids/{id}")["schema"]) for id in sorted(found["confluent"])},
    "global": {str(id): get(f"/apis/registry/v2/ids/globalIds/{id}") for id in sorted(found["global"])},
}
(out / "registry.json").write_text(json.dumps(registry, separators=(",", ":"), ensure_ascii=False) + "\n")
PY
}

capture_formats() {
  start_over
  local formats=(schema plain confluent headers eight) format settings one=topic.creation.default.partitions=1
  mariadb -e 'CREATE TABLE orders (id BIGINT PRIMARY KEY, account VARCHAR(20) NOT NULL, status VARCHAR(16) NOT NULL,
    amount DECIMAL(12,2) NOT NULL, placed_at DATETIME(3) NOT NULL)'
  postgres -c 'CREATE TABLE orders (id bigint PRIMARY KEY, account varchar(20) NOT NULL, status varchar(16) NOT NULL,
    amount numeric(12,2) NOT NULL, placed_at timestamp(3) NOT NULL)'
  python3 "$here/types/sql.py" mariadb create | mariadb
  python3 "$here/types/sql.py" postgres create | postgres
  for format in "${formats[@]}"; do
    mapfile -t settings < <(converters "$format")
    case $format in schema | plain) ;; *) settings+=(schema.name.adjustment.mode=avro) ;; esac
    settings+=("$one" skipped.operations=none)
    mariadb_connector mariadb-source "mariadb-$format" table.include.list=shop.orders,shop.types_all "${settings[@]}"
    postgres_connector postgres-source "postgres-$format" table.include.list=public.orders,public.types_all "${settings[@]}"
  done
  mapfile -t settings < <(converters confluent)
  mariadb_connector mariadb-source my-app "${settings[@]}" "$one"
  each wait
  for database in mariadb postgres; do
    "$database" <<'SQL'
INSERT INTO orders VALUES (1, 'alice', 'new', 12.50, '2026-11-29 12:34:56.789'), (2, 'Zoë €', 'new', -0.01, '1969-12-31 23:59:59.001');
UPDATE orders SET status = 'paid' WHERE id = 1;
UPDATE orders SET id = 22 WHERE id = 2;
DELETE FROM orders WHERE id = 1;
SQL
    python3 "$here/types/sql.py" "$database" changes | "$database"
    "$database" <<<'TRUNCATE TABLE types_all;'
  done
  for format in "${formats[@]}"; do # 2 creates, an update, d + tombstone + c of the key change, d + tombstone
    until_counts 8 "mariadb-$format.shop.orders" "postgres-$format.public.orders"
    until_counts 10 "mariadb-$format.shop.types_all" "postgres-$format.public.types_all"
    for database in mariadb.shop postgres.public; do
      save_bytes "${database%.*}-shop-$format.jsonl" "${database%.*}-$format.${database#*.}.orders"
      save_bytes "${database%.*}-types-$format.jsonl.gz" "${database%.*}-$format.${database#*.}.types_all"
    done
  done
  until_counts 8 my-app.shop.orders
  save_bytes mariadb-hyphen.jsonl my-app.shop.orders
  save_registry
  for database in mariadb postgres; do
    countersign inspect --output json "$out/$database-types-schema.jsonl.gz" >"$out/$database-types.golden.jsonl"
  done
}

# The changes of `repeated`: slow enough to be in the middle when Connect is killed.
repeated_changes() { # repeated_changes SLEEP-STATEMENT
  local from id
  for ((from = 0; from < 1000; from += 50)); do
    echo "BEGIN;"
    for ((id = from; id < from + 50; id++)); do echo "INSERT INTO repeated VALUES ($id, 'new');"; done
    echo "COMMIT; UPDATE repeated SET v = 'paid' WHERE id >= $from AND id < $from + 33;"
    for ((id = from; id < from + 17; id++)); do
      echo "BEGIN; UPDATE repeated SET v = 'a' WHERE id = $id; UPDATE repeated SET v = 'b' WHERE id = $id; COMMIT;"
    done
    echo "UPDATE repeated SET id = id + 100000 WHERE id >= $from AND id < $from + 8;"
    echo "DELETE FROM repeated WHERE id >= $from + 33 AND id < $from + 50; $1"
  done
  echo "INSERT INTO repeated VALUES (999999, 'last');"
}

capture_repeated() {
  start_over
  local database plain=(key.converter.schemas.enable=false value.converter.schemas.enable=false topic.creation.default.partitions=1)
  mariadb -e 'CREATE TABLE repeated (id BIGINT PRIMARY KEY, v VARCHAR(10))'
  postgres -c 'CREATE TABLE repeated (id bigint PRIMARY KEY, v varchar(10))'
  mariadb_connector mariadb-source mariadb-repeated table.include.list=shop.repeated "${plain[@]}"
  postgres_connector postgres-source postgres-repeated table.include.list=public.repeated "${plain[@]}"
  each wait
  each checkpoint
  repeated_changes 'DO SLEEP(0.5);' | mariadb &
  repeated_changes 'SELECT pg_sleep(0.5);' | postgres &
  local topics=(mariadb-repeated.shop.repeated postgres-repeated.public.repeated) topic enough
  for enough in 600 1300; do
    for topic in "${topics[@]}"; do
      until [ "$("$stack/topics.sh" count "$topic")" -ge "$enough" ]; do sleep 0.1; done
    done
    emit_again
  done
  wait
  for topic in "${topics[@]}"; do # one partition: what is behind the last change is a repetition of it
    until "$stack/topics.sh" lines "$topic" | tail -1 | jq -e '.value | fromjson | .after.id == 999999' >/dev/null; do sleep 0.5; done
    database=${topic%%-*}
    save "$database-repeated" "$topic"
    gzip -9nf "$out/$database-repeated.jsonl"
  done
}

if [ $# -eq 0 ]; then set -- shop demo formats repeated; fi
for part; do
  case $part in
    shop) capture_everything ;;
    demo | formats | repeated) "capture_$part" ;;
    *) echo "capture: there is no part $part" >&2; exit 2 ;;
  esac
done
start_over
wc -c "$out"/*.json*
