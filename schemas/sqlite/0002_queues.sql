-- Version 2. The queue of a message that waits: a hash of its record's key, with order = "key".

ALTER TABLE countersign_inbox ADD COLUMN order_key BLOB;
CREATE INDEX countersign_inbox_queue ON countersign_inbox (order_key, kafka_offset) WHERE order_key IS NOT NULL AND status = 'WAITING';
