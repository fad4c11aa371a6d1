-- Where they go to: an empty table, a note of what was migrated, and somebody who may write both.
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
CREATE TABLE migrated (first bigint PRIMARY KEY, fence bigint NOT NULL);
