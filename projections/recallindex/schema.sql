-- What the search index holds of each live data point: enough to find, move and remove its documents.
create table data_points (
	id                 uuid primary key,
	project_id         uuid not null,
	audience           uuid not null,
	revision           int not null,         -- whose passages are in the index
	body_at            bigint not null,      -- the revision of the data point's stream that holds its text
	occurred_at        timestamptz not null,
	memory_revision    int not null,         -- whose memories are in the index; 0 for none
	memory_at          bigint not null,      -- the revision of the memory stream that holds them
	passages           int not null,         -- how many the index holds of revision
	memories           int not null,         -- how many it holds of memory_revision
	position           bigint not null       -- of the newest event applied
) with (fillfactor = 70); -- room for the second write, when its memories come
create index data_points_by_project on data_points (project_id, id);
