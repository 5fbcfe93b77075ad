-- Live data points with their revisions, the sends that brought them and the items of each send.
-- A deleted data point leaves data_points and revisions at once; its items stay, without text.
create table data_points (
	id           uuid primary key,
	project_id   uuid not null,
	source_id    text not null,
	revision     int not null,                 -- the newest accepted one
	audience     uuid not null,                -- zero: project-visible
	occurred_at  timestamptz not null,
	ingestion_id uuid not null,                -- the send of that revision
	accepted_at  timestamptz not null,
	position     bigint not null               -- of the newest event applied
);
create index data_points_by_project on data_points (project_id, accepted_at, id);

create table revisions (
	data_point    uuid not null,
	number        int not null,
	project_id    uuid not null,
	node_id       uuid not null unique,
	historic      boolean not null,             -- stored behind later effects; never the newest
	content       bytea,                        -- null where it is in a blob
	content_blob  jsonb,                        -- blob.Ref
	metadata      text,                         -- JSON as sent; null for none or where it is in a blob
	metadata_blob jsonb,
	label         text,
	author        text,
	occurred_at   timestamptz not null,
	ingestion_id  uuid not null,
	accepted_at   timestamptz not null,
	primary key (data_point, number)
);

create table sends (
	id              uuid primary key,
	project_id      uuid not null,
	request_id      uuid not null,
	accepted_at     timestamptz not null,
	item_count      int not null,
	phase           text not null,              -- queued, processing, captured, indexed, failed, nothing-changed
	settled_at      timestamptz,                -- when it reached indexed, failed or nothing-changed
	failure_code    text,
	failure_message text,
	failure_stands  boolean not null default false, -- failed, and not made moot by a deletion or a newer completed revision
	round           int not null default 0,     -- how many retries
	bytes           bigint not null,
	credit_tenths   bigint not null,
	month           text not null,
	fanned_out      boolean not null,           -- false for a batch between its commit and the end of its fan-out
	position        bigint not null             -- of the event that brought it to its phase
);
create index sends_open on sends (project_id, phase) where phase in ('queued', 'processing', 'captured', 'failed');
create index sends_unfanned on sends (position) where not fanned_out;

create table items (
	ingestion_id    uuid not null,
	ordinal         int not null,
	project_id      uuid not null,
	data_point      uuid not null,
	revision        int not null,               -- 0 where the data point was deleted before it
	outcome         text not null,              -- created, updated, unchanged, moved, deleted
	phase           text not null,              -- queued, processing, captured, failed, done
	attempt         int not null default 0,
	failure_code    text,
	failure_message text,
	position        bigint not null,            -- of the event that brought it to its phase
	primary key (ingestion_id, ordinal)
);
create index items_by_data_point on items (data_point, revision);
create index items_todo on items (project_id, position) where phase in ('queued', 'processing');

-- Counts of sends per project, kept by the page that changes them.
create table readiness (
	project_id    uuid primary key,
	raw           bigint not null default 0,
	comprehension bigint not null default 0,
	failed        bigint not null default 0
);

create table deletions (
	id          uuid primary key,
	project_id  uuid not null,
	accepted_at timestamptz not null,
	fanned_out  boolean not null,
	cleaned     boolean not null default false,
	position    bigint not null
);
create index deletions_open on deletions (position) where not cleaned;

-- Data points that a deletion took and whose streams are not tombstoned yet.
create table erasures (
	data_point  uuid primary key,
	project_id  uuid not null,
	deletion_id uuid not null,
	facts_kept  boolean not null default false,
	position    bigint not null
);
create index erasures_by_deletion on erasures (deletion_id);
