-- Version 2. The queue of a message that waits: a hash of its record's key, with order = "key".

ALTER TABLE countersign_inbox ADD COLUMN order_key varbinary(32) NULL;
