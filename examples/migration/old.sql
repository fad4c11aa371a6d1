-- The source database: orders (300,000, or the number in `migration.rows`), and a user who may read them.
CREATE TABLE orders (
    id bigint PRIMARY KEY,
    customer text NOT NULL,
    amount numeric(10, 2) NOT NULL,
    placed timestamptz NOT NULL,
    note text
);
INSERT INTO orders
SELECT id, 'customer ' || id % 1000, id % 9973 / 100.0, timestamptz '2013-01-01 00:00:00+00' + id * interval '97 seconds',
       CASE WHEN id % 7 = 0 THEN 'a "note", with ''quotes'', ünïcode' || E'\nand a second line' END
FROM generate_series(1, coalesce(current_setting('migration.rows', true), '300000')::bigint) id;
CREATE ROLE reader LOGIN PASSWORD 'old: $HOME is ''here''';
GRANT SELECT ON orders TO reader;
ANALYZE orders;
