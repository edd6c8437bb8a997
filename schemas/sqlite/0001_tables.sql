-- countersign tables, version 1. Keys are bytes: no collation can join two ids.

CREATE TABLE countersign_meta (
    name        TEXT PRIMARY KEY,
    value       TEXT NOT NULL
);

-- One row a message: the proof that its effect committed, for it commits with it.
CREATE TABLE countersign_inbox (
    inbox_key       BLOB NOT NULL PRIMARY KEY,
    pipeline        TEXT NOT NULL,
    scope           TEXT NOT NULL,
    route           TEXT NOT NULL,
    message_id      TEXT,
    status          TEXT NOT NULL CHECK (status IN ('PROCESSING', 'WAITING', 'SUCCESS', 'FAILED')),
    code            TEXT,
    reason          TEXT,
    digest          TEXT,
    version         INTEGER NOT NULL DEFAULT 1,
    attempts        INTEGER NOT NULL DEFAULT 1,
    attempt_token   INTEGER NOT NULL,
    lease_until     TEXT,
    correlation_id  TEXT,
    source_app      TEXT,
    receipt_key     TEXT NOT NULL,
    topic           TEXT NOT NULL,
    kafka_partition INTEGER NOT NULL,
    kafka_offset    INTEGER NOT NULL,
    source_instance TEXT,
    result          TEXT,
    waiting_record  BLOB,
    next_try_at     TEXT,
    received_at     TEXT NOT NULL,
    finished_at     TEXT
);
CREATE INDEX countersign_inbox_received ON countersign_inbox (pipeline, received_at);
CREATE INDEX countersign_inbox_correlation ON countersign_inbox (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX countersign_inbox_waiting ON countersign_inbox (pipeline, next_try_at) WHERE status IN ('WAITING', 'PROCESSING');

-- Receipts that are not delivered yet. A delivered row is deleted.
CREATE TABLE countersign_outbox (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline        TEXT NOT NULL,
    topic           TEXT,
    kafka_partition INTEGER,
    receipt_id      TEXT NOT NULL,
    receipt_key     TEXT NOT NULL,
    receipt         TEXT NOT NULL,
    created_at      TEXT NOT NULL
);
CREATE INDEX countersign_outbox_lane ON countersign_outbox (pipeline, topic, kafka_partition, id);

CREATE TABLE countersign_dead_letters (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    dead_letter_key BLOB NOT NULL UNIQUE,
    pipeline        TEXT NOT NULL,
    route           TEXT,
    inbox_key       BLOB NOT NULL,
    message_id      TEXT,
    topic           TEXT NOT NULL,
    kafka_partition INTEGER NOT NULL,
    kafka_offset    INTEGER NOT NULL,
    kafka_timestamp INTEGER,
    class           TEXT NOT NULL,
    code            TEXT NOT NULL,
    reason          TEXT NOT NULL,
    status          TEXT NOT NULL CHECK (status IN ('open', 'redriven', 'discarded')),
    digest          TEXT,
    record_key      BLOB,
    record_value    BLOB,
    headers         BLOB,
    attempts        INTEGER NOT NULL,
    created_at      TEXT NOT NULL,
    updated_at      TEXT NOT NULL
);
CREATE INDEX countersign_dead_letters_open ON countersign_dead_letters (pipeline, status, id);
CREATE INDEX countersign_dead_letters_inbox ON countersign_dead_letters (inbox_key);

CREATE TABLE countersign_lanes (
    pipeline        TEXT NOT NULL,
    topic           TEXT NOT NULL,
    kafka_partition INTEGER NOT NULL,
    epoch           INTEGER NOT NULL,
    owner           TEXT NOT NULL,
    generation      INTEGER NOT NULL DEFAULT 0,
    next_offset     INTEGER NOT NULL,
    records_seen    INTEGER NOT NULL DEFAULT 0,
    recent_parks    TEXT NOT NULL DEFAULT '',
    paused          TEXT,
    skip_to         INTEGER,
    updated_at      TEXT NOT NULL,
    PRIMARY KEY (pipeline, topic, kafka_partition)
);

-- The newest source position applied to each guarded row, kept after its delete.
CREATE TABLE countersign_row_versions (
    pipeline    TEXT NOT NULL,
    table_name  TEXT NOT NULL,
    key_hash    BLOB NOT NULL,
    lineage     TEXT NOT NULL,
    position    TEXT NOT NULL,
    deleted     INTEGER NOT NULL,
    updated_at  TEXT NOT NULL,
    PRIMARY KEY (pipeline, table_name, key_hash)
);

CREATE TABLE countersign_reconcile_batches (
    id          INTEGER PRIMARY KEY AUTOINCREMENT,
    pipeline    TEXT NOT NULL,
    topic       TEXT NOT NULL,
    from_ms     INTEGER,
    to_ms       INTEGER,
    status      TEXT NOT NULL,
    checked     INTEGER NOT NULL DEFAULT 0,
    differences INTEGER NOT NULL DEFAULT 0,
    started_at  TEXT NOT NULL,
    finished_at TEXT
);

CREATE TABLE countersign_reconcile_diffs (
    id              INTEGER PRIMARY KEY AUTOINCREMENT,
    batch_id        INTEGER NOT NULL REFERENCES countersign_reconcile_batches (id),
    message_id      TEXT,
    topic           TEXT NOT NULL,
    kafka_partition INTEGER NOT NULL,
    kafka_offset    INTEGER NOT NULL,
    kind            TEXT NOT NULL,
    detail          TEXT NOT NULL
);
