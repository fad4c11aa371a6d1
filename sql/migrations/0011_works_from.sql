-- Which programs can work with the tables after a migration: so an older program knows whether it may go on.

ALTER TABLE opendataflow.migration ADD works_from integer;
UPDATE opendataflow.migration SET works_from = number;
ALTER TABLE opendataflow.migration ALTER works_from SET NOT NULL;
