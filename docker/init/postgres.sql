-- The bank (target), run once by the postgres container in the database `bank`. The tables countersign_* are
-- made by `countersign migrate`.
CREATE TABLE accounts (
  id      text PRIMARY KEY,
  balance numeric(12,2) NOT NULL CHECK (balance >= 0)
);
INSERT INTO accounts VALUES ('alice', 500.00), ('bob', 100.00), ('carol', 20.00), ('dave', 300.00), ('erin', 100.00);

CREATE TABLE ledger (
  id        bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
  order_id  text NOT NULL,
  account   text NOT NULL REFERENCES accounts,
  amount    numeric(12,2) NOT NULL,
  booked_at timestamptz NOT NULL DEFAULT now()
);

-- What guard = "source" needs beside it is in countersign_row_versions; the mirror is a plain table.
CREATE TABLE orders_copy (
  id        bigint PRIMARY KEY,
  account   varchar(20)   NOT NULL,
  status    varchar(16)   NOT NULL,
  amount    numeric(12,2) NOT NULL,
  placed_at timestamp(3)  NOT NULL
);
