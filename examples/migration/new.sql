-- Where they go to: an empty table, and somebody who may write it.
CREATE ROLE writer LOGIN PASSWORD 'new: one-way-street';
GRANT CREATE ON SCHEMA public TO writer; -- each attempt has a table of its own
SET ROLE writer;
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    amount numeric(10, 2) NOT NULL,
    placed timestamptz NOT NULL,
    note text
);
