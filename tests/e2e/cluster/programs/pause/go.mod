module opendataflow/pause

go 1.26.0
