-- countersign tables, version 1. Keys are bytes: no collation can join two ids.

CREATE TABLE countersign_meta (
    name        VARCHAR(64) PRIMARY KEY,
    value       TEXT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- One row a message: the proof that its effect committed, for it commits with it.
CREATE TABLE countersign_inbox (
    inbox_key       VARBINARY(320) NOT NULL PRIMARY KEY,
    pipeline        VARCHAR(64) NOT NULL,
    scope           VARCHAR(64) NOT NULL,
    route           VARCHAR(64) NOT NULL,
    message_id      TEXT,
    status          VARCHAR(64) NOT NULL CHECK (status IN ('PROCESSING', 'WAITING', 'SUCCESS', 'FAILED')),
    code            VARCHAR(64),
    reason          TEXT,
    digest          VARCHAR(200),
    version         INT NOT NULL DEFAULT 1,
    attempts        INT NOT NULL DEFAULT 1,
    attempt_token   BIGINT NOT NULL,
    lease_until     DATETIME(6),
    correlation_id  TEXT,
    source_app      TEXT,
    receipt_key     TEXT NOT NULL,
    topic           VARCHAR(249) NOT NULL,
    kafka_partition INT NOT NULL,
    kafka_offset    BIGINT NOT NULL,
    source_instance TEXT,
    result          LONGTEXT,
    waiting_record  LONGBLOB,
    next_try_at     DATETIME(6),
    received_at     DATETIME(6) NOT NULL,
    finished_at     DATETIME(6)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX countersign_inbox_received ON countersign_inbox (pipeline, received_at);
CREATE INDEX countersign_inbox_correlation ON countersign_inbox (correlation_id(191));
CREATE INDEX countersign_inbox_waiting ON countersign_inbox (pipeline, status, next_try_at);

-- Receipts that are not delivered yet. A delivered row is deleted.
CREATE TABLE countersign_outbox (
    id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    pipeline        VARCHAR(64) NOT NULL,
    topic           VARCHAR(249),
    kafka_partition INT,
    receipt_id      VARCHAR(64) NOT NULL,
    receipt_key     TEXT NOT NULL,
    receipt         LONGTEXT NOT NULL,
    created_at      DATETIME(6) NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX countersign_outbox_lane ON countersign_outbox (pipeline, topic, kafka_partition, id);

CREATE TABLE countersign_dead_letters (
    id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    dead_letter_key VARBINARY(32) NOT NULL UNIQUE,
    pipeline        VARCHAR(64) NOT NULL,
    route           VARCHAR(64),
    inbox_key       VARBINARY(320) NOT NULL,
    message_id      TEXT,
    topic           VARCHAR(249) NOT NULL,
    kafka_partition INT NOT NULL,
    kafka_offset    BIGINT NOT NULL,
    kafka_timestamp BIGINT,
    class           VARCHAR(64) NOT NULL,
    code            VARCHAR(64) NOT NULL,
    reason          TEXT NOT NULL,
    status          VARCHAR(64) NOT NULL CHECK (status IN ('open', 'redriven', 'discarded')),
    digest          VARCHAR(200),
    record_key      LONGBLOB,
    record_value    LONGBLOB,
    headers         LONGBLOB,
    attempts        INT NOT NULL,
    created_at      DATETIME(6) NOT NULL,
    updated_at      DATETIME(6) NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
CREATE INDEX countersign_dead_letters_open ON countersign_dead_letters (pipeline, status, id);
CREATE INDEX countersign_dead_letters_inbox ON countersign_dead_letters (inbox_key);

CREATE TABLE countersign_lanes (
    pipeline        VARCHAR(64) NOT NULL,
    topic           VARCHAR(249) NOT NULL,
    kafka_partition INT NOT NULL,
    epoch           BIGINT NOT NULL,
    owner           VARCHAR(64) NOT NULL,
    generation      INT NOT NULL DEFAULT 0,
    next_offset     BIGINT NOT NULL,
    records_seen    BIGINT NOT NULL DEFAULT 0,
    recent_parks    TEXT NOT NULL DEFAULT (''),
    paused          TEXT,
    skip_to         BIGINT,
    updated_at      DATETIME(6) NOT NULL,
    PRIMARY KEY (pipeline, topic, kafka_partition)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

-- The newest source position applied to each guarded row, kept after its delete.
CREATE TABLE countersign_row_versions (
    pipeline    VARCHAR(64) NOT NULL,
    table_name  VARCHAR(200) NOT NULL,
    key_hash    VARBINARY(32) NOT NULL,
    lineage     TEXT NOT NULL,
    position    TEXT NOT NULL,
    deleted     TINYINT(1) NOT NULL,
    updated_at  DATETIME(6) NOT NULL,
    PRIMARY KEY (pipeline, table_name, key_hash)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE countersign_reconcile_batches (
    id          BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    pipeline    VARCHAR(64) NOT NULL,
    topic       VARCHAR(249) NOT NULL,
    from_ms     BIGINT,
    to_ms       BIGINT,
    status      VARCHAR(64) NOT NULL,
    checked     BIGINT NOT NULL DEFAULT 0,
    differences BIGINT NOT NULL DEFAULT 0,
    started_at  DATETIME(6) NOT NULL,
    finished_at DATETIME(6)
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;

CREATE TABLE countersign_reconcile_diffs (
    id              BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY,
    batch_id        BIGINT NOT NULL REFERENCES countersign_reconcile_batches (id),
    message_id      TEXT,
    topic           VARCHAR(249) NOT NULL,
    kafka_partition INT NOT NULL,
    kafka_offset    BIGINT NOT NULL,
    kind            VARCHAR(64) NOT NULL,
    detail          TEXT NOT NULL
) ENGINE=InnoDB DEFAULT CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
