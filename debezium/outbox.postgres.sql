-- The outbox of a service on PostgreSQL: written in the same transaction as the business change, read from the
-- log by Debezium (postgres-outbox.json). Rows may be deleted at once, even in that transaction: Debezium takes
-- the insert from the log.
CREATE TABLE outbox (
  id            uuid        NOT NULL PRIMARY KEY,       -- the MessageId: made when the intent was formed, the same in every retry
  aggregatetype text        NOT NULL,                   -- 'payment' goes to the topic shop.payment.events
  aggregateid   text        NOT NULL,                   -- Kafka key: what must stay in order
  type          text        NOT NULL,                   -- header eventType
  source        text        NOT NULL DEFAULT 'shop',    -- header source: who asked
  payload       jsonb       NOT NULL,                   -- money as text ("12.50"): JSON numbers pass through a double
  created_at    timestamptz NOT NULL DEFAULT now()
);
