-- Version 2. The queue of a message that waits: a hash of its record's key, with order = "key".

ALTER TABLE countersign_inbox ADD COLUMN order_key bytea;
CREATE INDEX countersign_inbox_queue ON countersign_inbox (order_key, kafka_offset) WHERE order_key IS NOT NULL AND status = 'WAITING';

-- What an operator decided about a dead letter; the bytes that came stay beside an edited value.
ALTER TABLE countersign_dead_letters ADD COLUMN edited_value bytea NULL;
ALTER TABLE countersign_dead_letters ADD COLUMN decided_by text NULL;
ALTER TABLE countersign_dead_letters ADD COLUMN decided_why text NULL;
CREATE INDEX countersign_reconcile_diffs_batch ON countersign_reconcile_diffs (batch_id);

-- Why a lane stands, as far as its owner could say.
ALTER TABLE countersign_lanes ADD COLUMN standing text NULL;
