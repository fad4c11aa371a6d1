-- What becomes of the runs of a job that is deleted: its resource is gone then and can't be asked.

ALTER TABLE opendataflow.job ADD cancel_on_delete boolean NOT NULL DEFAULT false;
