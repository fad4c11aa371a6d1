-- What the views of schema dataflow need: who has published a chunk, and the rows of a statement until its end.

ALTER TABLE opendataflow.chunk ADD COLUMN publisher text;

CREATE UNLOGGED TABLE opendataflow.view_row (
    id       bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    view     text NOT NULL,
    content  jsonb NOT NULL
);

-- The primary key has to be the youngest index of its table: while the table is small it costs as much as the others to the
-- planner, which then takes the youngest, and sessions keep that plan when the table is large.
ALTER TABLE opendataflow.task DROP CONSTRAINT task_pkey, ADD PRIMARY KEY (job, data_id);
