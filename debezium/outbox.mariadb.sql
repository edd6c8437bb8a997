-- The outbox of a service on MariaDB or MySQL: written in the same transaction as the business change,
-- read from the binlog by Debezium (mariadb-outbox.json). Rows may be deleted at once, even in that transaction:
-- Debezium takes the insert from the log.
CREATE TABLE outbox (
  id            CHAR(36) CHARACTER SET ascii NOT NULL,  -- the MessageId: made when the intent was formed, the same in every retry
  aggregatetype VARCHAR(64)  NOT NULL,                  -- 'payment' goes to the topic shop.payment.events
  aggregateid   VARCHAR(128) NOT NULL,                  -- Kafka key: what must stay in order
  type          VARCHAR(64)  NOT NULL,                  -- header eventType
  source        VARCHAR(64)  NOT NULL DEFAULT 'shop',   -- header source: who asked
  payload       JSON         NOT NULL,                  -- money as text ("12.50"): JSON numbers pass through a double
  created_at    TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6),
  PRIMARY KEY (id)
);
