-- Where each live data point points to in the space of a model of meaning.
create table points (
	id          uuid primary key,
	project_id  uuid not null,
	audience    uuid not null,
	occurred_at timestamptz not null,
	revision    int not null,                -- the newest one
	captured    int not null default 0,      -- the newest one with memories, 0 for none
	model       text not null default '',    -- that made the vectors, '' where there are none of this revision
	dims        int not null default 0,
	vectors     bytea not null default '',   -- one after the other: the scale as a little-endian float32, then a signed byte per dimension
	part        int not null default 0,      -- parts of an answer that is not whole yet
	partial     bytea not null default '',
	position    bigint not null              -- of the event that changed what a reader sees of it
) with (fillfactor = 90);
create index points_by_project on points (project_id, position);
create index points_captured on points (model) where captured = revision;

-- How many data points of a project went.
create table removals (
	project_id uuid primary key,
	count      bigint not null
);

-- No statistics of texts: Postgres would keep whole values there, also of what is deleted.
alter table points alter vectors set statistics 0, alter partial set statistics 0;
