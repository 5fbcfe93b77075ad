-- Live data points with their revisions, the sends that brought them and the items of each send.
-- A deleted data point leaves data_points and revisions at once; its items stay, without text.
create table data_points (
	id           uuid primary key,
	project_id   uuid not null,
	source_id    text not null,
	revision     int not null,                 -- the newest accepted one
	captured     int not null default 0,       -- the newest one with memories, 0 for none
	memories     int not null default 0,       -- how many that one has
	audience     uuid not null,                -- zero: project-visible
	occurred_at  timestamptz not null,
	ingestion_id uuid not null,                -- the send of that revision
	accepted_at  timestamptz not null,
	position     bigint not null               -- of the newest revision or move
);
create index data_points_by_project on data_points (project_id, accepted_at, id);
create index data_points_by_time on data_points (project_id, occurred_at, id);

create table revisions (
	data_point    uuid not null,
	number        int not null,
	project_id    uuid not null,
	node_id       uuid not null,
	historic      boolean not null,             -- stored behind later effects; never the newest
	content       bytea,                        -- null where it is in a blob
	content_blob  jsonb,                        -- blob.Ref
	tokens        int,                          -- what the content costs a page of recall; null where it is in a blob
	metadata      text,                         -- JSON as sent; null for none or where it is in a blob
	metadata_blob jsonb,
	label         text,
	author        text,
	occurred_at   timestamptz not null,
	ingestion_id  uuid not null,
	accepted_at   timestamptz not null,
	audience      uuid,                         -- the last one while this revision was the newest; null where it is not known
	primary key (data_point, number)
);

-- The phase follows from the verdict of the send's own stream and from the counts of its items (send.go). What is
-- counted nowhere is not fanned out yet.
create table sends (
	id               uuid primary key,
	project_id       uuid not null,
	request_id       uuid not null,
	accepted_at      timestamptz not null,
	item_count       int not null,
	batch            boolean not null,          -- committed on its own stream; false for a single send
	phase            text not null,             -- queued, processing, captured, indexed, failed, nothing-changed
	settled_at       timestamptz,               -- when it reached indexed, failed or nothing-changed
	failure_code     text,
	failure_message  text,
	failure_stands   boolean not null,          -- failed, and not made moot by a deletion or a newer completed revision
	round            int not null,              -- how many retries
	ingestions       int not null,              -- how many items are charged: those that brought a revision; of a batch that is
	bytes            bigint not null,           -- not fanned out those that its commit priced
	credit_tenths    bigint not null,
	month            text not null,
	fanned_out       boolean not null,          -- false for a batch between its commit and the end of its fan-out
	deleted_at       timestamptz,               -- when the send as a whole was deleted: what lives on left its list
	verdict          text not null,             -- '', indexed or failed, as its own stream says
	verdict_at       timestamptz,
	searchable_at    timestamptz,               -- since when all of it is searchable, from a watermark
	queued           int not null,
	processing       int not null,
	captured         int not null,
	failed           int not null,
	standing         int not null,              -- of the failed those that are not moot
	unchanged        int not null,              -- unchanged or moved
	deleted          int not null,
	last_deleted_at  timestamptz,               -- when the last of the deleted ones went
	position         bigint not null            -- of the event that set its phase; while captured, of its last capture
) with (fillfactor = 80);
create index sends_unfanned on sends (position) where not fanned_out;
-- Sends that a watermark ends, and sends that end one by one.
create index sends_searchable on sends (position) where phase = 'captured' and failed = 0 and deleted = 0;
create index sends_confirmable on sends (position, id) where phase = 'captured' and (failed > 0 or deleted > 0);
create index sends_failed on sends (accepted_at, id) where failure_stands;

-- What the streams of sends say whose data point was erased before a replay began, until its kept facts come by.
create table verdicts (
	id               uuid primary key,
	project_id       uuid not null,
	verdict          text not null,
	verdict_at       timestamptz,
	failure_code     text,
	failure_message  text,
	round            int not null,
	deleted_at       timestamptz
);

-- The items of a committed batch whose fan-out is not complete, in the order sent: their data points, and the size of each, which
-- is its price where it brings a revision.
create table batches (
	id            uuid primary key,
	data_points   uuid[] not null,
	bytes         bigint[] not null
);

-- Every blob that is not ended yet. One that nothing refers to at its deadline is swept; that of an erased owner goes with it.
create table blobs (
	stream     text primary key,
	project_id uuid not null,
	owner      uuid not null,                   -- a data point, the send of a stage, an identity, a bulk write, or the project (audiences)
	deadline   timestamptz not null,
	referred   boolean not null,                -- by an event of its owner that needs it
	send       uuid,                            -- the batch that it is the stage of, once that is committed
	holds      uuid[],                          -- the data points or identities whose text a stage holds; null: not known
	spent      boolean not null default false,  -- the rows of a bulk write that is fanned out
	position   bigint not null                  -- of its begin
);
create index blobs_by_owner on blobs (owner);
create index blobs_loose on blobs (deadline) where not referred;

create table items (
	ingestion_id    uuid not null,
	ordinal         int not null,
	project_id      uuid not null,
	data_point      uuid not null,
	revision        int not null,               -- 0 where the data point was deleted before it
	historic        boolean not null,           -- stored behind later effects
	outcome         text not null,              -- created, updated, unchanged, moved, deleted
	phase           text not null,              -- queued, processing, captured, failed, done; unindexed: captured, but its send
	                                            -- failed on the index; erased: its data point is, and the facts come later in a replay
	attempt         int not null,
	failure_code    text,
	failure_message text,
	moot            boolean not null,           -- failed or unindexed, while a newer revision is captured
	deleted_at      timestamptz,                -- when its data point was deleted; null if it brought no revision
	superseded      boolean not null,           -- deleted while another send had brought the newest revision
	position        bigint not null,            -- of the event that brought it to its phase
	primary key (ingestion_id, ordinal)
) with (fillfactor = 80);
-- However often a data point is sent unchanged, its deletion finds only what brought a revision.
create index items_by_data_point on items (data_point) where outcome not in ('unchanged', 'moved');
create index items_stopped on items (data_point) where phase in ('failed', 'unindexed');
create index items_todo on items (project_id, position) where phase in ('queued', 'processing');
create index items_waiting on items (position) where phase = 'queued' and attempt = 0;
create index items_open on items (data_point, revision) where phase in ('queued', 'processing');

-- Counts of sends per project, kept by the page that changes them.
create table readiness (
	project_id    uuid primary key,
	raw           bigint not null,
	comprehension bigint not null,
	failed        bigint not null
);

-- What the sends of a project took in a UTC calendar month ("2026-11"), kept by the page that changes it.
create table month_usage (
	project_id    uuid not null,
	month         text not null,
	ingestions    bigint not null,              -- data points that brought a revision, deleted since or not
	credit_tenths bigint not null,
	primary key (project_id, month)
);

-- What recall could return of a project to those who reach an audience, kept by the page that changes it. Where nothing is left
-- there is no row.
create table scopes (
	project_id uuid not null,
	audience   uuid not null,                   -- zero: project-visible
	live       bigint not null,                 -- data points
	memories   bigint not null,                 -- of their newest captured revisions
	primary key (project_id, audience)
);

create table deletions (
	id           uuid primary key,
	project_id   uuid not null,
	ingestion_id uuid,                          -- the send that is deleted, null for a deletion by source ids
	accepted_at  timestamptz not null,
	fanned_out   boolean not null,
	cleaned      boolean not null,
	position     bigint not null
);
create index deletions_unfanned on deletions (position) where not fanned_out;
create index deletions_open on deletions (position) where not cleaned;

-- Data points that a deletion took and that it has not cleaned yet.
create table erasures (
	data_point  uuid primary key,
	project_id  uuid not null,
	deletion_id uuid not null,
	facts_kept  boolean not null,
	blobs       jsonb not null,                 -- names of streams, known once the facts are kept
	position    bigint not null
);
create index erasures_by_deletion on erasures (deletion_id);
create index erasures_open on erasures (position) where not facts_kept;

-- No statistics of texts: Postgres would keep whole values there, also of what is deleted.
alter table data_points alter source_id set statistics 0;
alter table revisions alter content set statistics 0, alter content_blob set statistics 0, alter metadata set statistics 0,
	alter metadata_blob set statistics 0, alter label set statistics 0, alter author set statistics 0;
alter table sends alter failure_message set statistics 0;
alter table verdicts alter failure_message set statistics 0;
alter table items alter failure_message set statistics 0;
