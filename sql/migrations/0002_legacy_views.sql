-- What the views of schema dataflow need: who has published a chunk, and the rows of a statement until its end.

ALTER TABLE opendataflow.chunk ADD COLUMN publisher text;

CREATE UNLOGGED TABLE opendataflow.view_row (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    view     text NOT NULL,
    content  jsonb NOT NULL
);
