CREATE TABLE accounts (id TEXT PRIMARY KEY, balance NUMERIC NOT NULL CHECK (balance >= 0));
INSERT INTO accounts VALUES ('alice', 500), ('bob', 100), ('carol', 20), ('dave', 300), ('erin', 100);
CREATE TABLE ledger (order_id TEXT NOT NULL, account TEXT NOT NULL REFERENCES accounts (id), amount TEXT NOT NULL);
CREATE TABLE orders_copy (
    id INTEGER PRIMARY KEY, account TEXT NOT NULL, status TEXT NOT NULL, amount TEXT NOT NULL, placed_at TEXT NOT NULL
);
