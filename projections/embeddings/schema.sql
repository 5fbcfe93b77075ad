-- The vectors of each live data point, by an embedding model.
create table points (
	id          uuid primary key,
	project_id  uuid not null,
	audience    uuid not null,
	occurred_at timestamptz not null,
	revision    int not null,                -- the newest one
	captured    int not null default 0,      -- the newest one with memories, 0: none
	model       text not null default '',    -- that made the vectors, '': none of this revision
	dims        int not null default 0,
	vectors     bytea not null default '',   -- each: the scale as a little-endian float32, then a signed byte per dimension
	part        int not null default 0,      -- number of parts received of an incomplete reply
	partial     bytea not null default '',
	position    bigint not null              -- of the newest event that changed what recall uses
) with (fillfactor = 90);
create index points_by_project on points (project_id, position);
create index points_captured on points (model) where captured = revision;

-- Counts the deleted data points of a project.
create table removals (
	project_id uuid primary key,
	count      bigint not null
);

-- No statistics of vectors: Postgres would keep whole values in them, also of deleted rows.
alter table points alter vectors set statistics 0, alter partial set statistics 0;
