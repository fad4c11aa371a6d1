-- Where the operator that leads may work; and the name of a run's pod goes, which is made of its job and id.
-- No program has ever read or written that name, so those of before can work with these tables.
-- Works from: 11

ALTER TABLE opendataflow.leader ADD namespaces text[] NOT NULL DEFAULT '{}';
ALTER TABLE opendataflow.run DROP COLUMN pod_name;
