-- The target database: an empty table, and a user who may write to it.
CREATE ROLE writer LOGIN PASSWORD 'new: one-way-street';
GRANT CREATE ON SCHEMA public TO writer; -- each attempt writes to its own table
SET ROLE writer;
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    amount numeric(10, 2) NOT NULL,
    placed timestamptz NOT NULL,
    note text
);
