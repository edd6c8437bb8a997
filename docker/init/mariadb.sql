-- The shop (source), run once by the mariadb container in the database `shop`; the outbox table is made by
-- debezium/outbox.mariadb.sql after it. A sale, as the shop would write it:
--
--   BEGIN;
--   INSERT INTO orders VALUES (1, 'alice', 'new', 12.50, NOW(3));
--   INSERT INTO outbox (id, aggregatetype, aggregateid, type, payload) VALUES
--     (UUID(), 'payment', 'alice', 'PaymentRequested', '{"orderId": "order-1", "account": "alice", "amount": "12.50"}');
--   COMMIT;
CREATE TABLE orders (
  id        BIGINT PRIMARY KEY,
  account   VARCHAR(20)   NOT NULL,
  status    VARCHAR(16)   NOT NULL,
  amount    DECIMAL(12,2) NOT NULL,
  placed_at DATETIME(3)   NOT NULL
);

-- The image may have made anonymous users; they would shadow 'debezium'@'%' for connections from the host itself.
DELETE FROM mysql.global_priv WHERE User = '';
FLUSH PRIVILEGES;
CREATE USER 'debezium'@'%' IDENTIFIED BY 'debezium';
GRANT SELECT, RELOAD, SHOW DATABASES, LOCK TABLES, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO 'debezium'@'%';
CREATE USER 'shop'@'%' IDENTIFIED BY 'shop';
GRANT ALL PRIVILEGES ON shop.* TO 'shop'@'%';
