-- The live data points, as semantic search knows them.
create table points (
	id          uuid primary key,
	project_id  uuid not null,
	audience    uuid not null,
	occurred_at timestamptz not null,
	spoken      boolean not null,            -- it has an author: its neighbours in time may be one conversation
	revision    int not null,                -- the newest one
	captured    int not null default 0,      -- the newest one with memories, 0: none
	model       text not null default '',    -- the last that made vectors of this revision, '': none did
	position    bigint not null              -- of the newest event that changed what recall uses
) with (fillfactor = 90);
create index points_by_project on points (project_id, position);
create index points_captured on points (model) where captured = revision;

-- The vectors of the newest revision, by each model that made some.
create table vectors (
	id      uuid not null,
	model   text not null,
	dims    int not null default 0,      -- 0: not complete yet, or the model accepts none of the texts
	vectors bytea not null default '',   -- each: the scale as a little-endian float32, then a signed byte per dimension
	part    int not null default 0,      -- number of parts received of an incomplete reply
	partial bytea not null default '',
	primary key (id, model)
);
create index vectors_by_model on vectors (model);

-- The last deleted data points of each project, so that processes remove them from memory. pruned is the position up to
-- which they are no longer listed.
create table removals (
	project_id uuid not null,
	position   bigint not null,
	id         uuid not null,
	primary key (project_id, position)
);
create table pruned (
	project_id uuid primary key,
	position   bigint not null
);

-- No statistics of vectors: Postgres would keep whole values in them, also of deleted rows.
alter table vectors alter vectors set statistics 0, alter partial set statistics 0;
