-- countersign tables, version 1. Keys are bytes: no collation can join two ids.

CREATE TABLE countersign_meta (
    name        text PRIMARY KEY,
    value       text NOT NULL
);

-- One row a message: the proof that its effect committed, for it commits with it.
CREATE TABLE countersign_inbox (
    inbox_key       bytea PRIMARY KEY,
    pipeline        text NOT NULL,
    scope           text NOT NULL,
    route           text NOT NULL,
    message_id      text,
    status          text NOT NULL CHECK (status IN ('PROCESSING', 'WAITING', 'SUCCESS', 'FAILED')),
    code            text,
    reason          text,
    digest          text,
    version         integer NOT NULL DEFAULT 1,
    attempts        integer NOT NULL DEFAULT 1,
    attempt_token   bigint NOT NULL,
    lease_until     timestamptz,
    correlation_id  text,
    source_app      text,
    receipt_key     text NOT NULL,
    topic           text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    source_instance text,
    result          text,
    waiting_record  bytea,
    next_try_at     timestamptz,
    received_at     timestamptz NOT NULL,
    finished_at     timestamptz
);
CREATE INDEX countersign_inbox_received ON countersign_inbox (pipeline, received_at);
CREATE INDEX countersign_inbox_correlation ON countersign_inbox (correlation_id) WHERE correlation_id IS NOT NULL;
CREATE INDEX countersign_inbox_waiting ON countersign_inbox (pipeline, next_try_at) WHERE status IN ('WAITING', 'PROCESSING');

-- Receipts that are not delivered yet. A delivered row is deleted.
CREATE TABLE countersign_outbox (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline        text NOT NULL,
    topic           text,
    kafka_partition integer,
    receipt_id      text NOT NULL,
    receipt_key     text NOT NULL,
    receipt         text NOT NULL,
    created_at      timestamptz NOT NULL
);
CREATE INDEX countersign_outbox_lane ON countersign_outbox (pipeline, topic, kafka_partition, id);

CREATE TABLE countersign_dead_letters (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    dead_letter_key bytea NOT NULL UNIQUE,
    pipeline        text NOT NULL,
    route           text,
    inbox_key       bytea NOT NULL,
    message_id      text,
    topic           text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    kafka_timestamp bigint,
    class           text NOT NULL,
    code            text NOT NULL,
    reason          text NOT NULL,
    status          text NOT NULL CHECK (status IN ('open', 'redriven', 'discarded')),
    digest          text,
    record_key      bytea,
    record_value    bytea,
    headers         bytea,
    attempts        integer NOT NULL,
    created_at      timestamptz NOT NULL,
    updated_at      timestamptz NOT NULL
);
CREATE INDEX countersign_dead_letters_open ON countersign_dead_letters (pipeline, status, id);
CREATE INDEX countersign_dead_letters_inbox ON countersign_dead_letters (inbox_key);

CREATE TABLE countersign_lanes (
    pipeline        text NOT NULL,
    topic           text NOT NULL,
    kafka_partition integer NOT NULL,
    epoch           bigint NOT NULL,
    owner           text NOT NULL,
    generation      integer NOT NULL DEFAULT 0,
    next_offset     bigint NOT NULL,
    records_seen    bigint NOT NULL DEFAULT 0,
    recent_parks    text NOT NULL DEFAULT '',
    paused          text,
    skip_to         bigint,
    updated_at      timestamptz NOT NULL,
    PRIMARY KEY (pipeline, topic, kafka_partition)
);

-- The newest source position applied to each guarded row, kept after its delete.
CREATE TABLE countersign_row_versions (
    pipeline    text NOT NULL,
    table_name  text NOT NULL,
    key_hash    bytea NOT NULL,
    lineage     text NOT NULL,
    position    text NOT NULL,
    deleted     boolean NOT NULL,
    updated_at  timestamptz NOT NULL,
    PRIMARY KEY (pipeline, table_name, key_hash)
);

CREATE TABLE countersign_reconcile_batches (
    id          bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    pipeline    text NOT NULL,
    topic       text NOT NULL,
    from_ms     bigint,
    to_ms       bigint,
    status      text NOT NULL,
    checked     bigint NOT NULL DEFAULT 0,
    differences bigint NOT NULL DEFAULT 0,
    started_at  timestamptz NOT NULL,
    finished_at timestamptz
);

CREATE TABLE countersign_reconcile_diffs (
    id              bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    batch_id        bigint NOT NULL REFERENCES countersign_reconcile_batches (id),
    message_id      text,
    topic           text NOT NULL,
    kafka_partition integer NOT NULL,
    kafka_offset    bigint NOT NULL,
    kind            text NOT NULL,
    detail          text NOT NULL
);
