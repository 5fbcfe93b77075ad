-- Live data points with their revisions, and sends with their items. The deletion of a data point
-- deletes its rows of data_points and revisions; its items stay, without text. Of a data point with very
-- many revisions the deletion deletes the row of data_points alone: a follow-up deletes its revisions and
-- ends its items (deletion.go).
create table data_points (
	id           uuid primary key,
	project_id   uuid not null,
	source_id    text not null,
	revision     int not null,                 -- the newest accepted one
	captured     int not null default 0,       -- the newest one with memories, 0: none
	memories     int not null default 0,       -- of the captured revision
	memory_head  bigint,                       -- stream revision of these memories, or of the last of the vectors
	                                           -- directly after them; null: none
	audience     uuid not null,                -- zero: project-visible
	occurred_at  timestamptz not null,
	ingestion_id uuid not null,                -- the send of the newest revision
	accepted_at  timestamptz not null,
	position     bigint not null,              -- of the newest revision or move
	author       text,                         -- of the newest revision; null: none
	label_key    text,                         -- what lists find its label by (labelKey in list.go); null: no label
	-- What recall ranks the newest revision by (rows.go).
	label         text,
	size          bigint not null,             -- bytes of the content, metadata_size those of the metadata
	metadata_size bigint not null,
	content_blob  jsonb,                       -- blob.Ref; null: the content is in the row of the revision
	tokens        int,                         -- null: in a blob
	traits        smallint not null,           -- of a short content, as what it states; 0 of another
	stems         bigint not null,
	exact         bigint not null,
	outline       bigint not null,
	conversation  bigint not null,             -- key of that which the metadata name; 0: none
	-- A source id may not fit into an index, and a key of an index remains in its inner pages after its row.
	source_key   text not null generated always as (left(source_id, 100)) stored,
	author_key   uuid generated always as (md5(project_id || ' ' || author)::uuid) stored
) with (fillfactor = 55); -- room for the second write, when its memories come, which then leaves the indexes alone
create index data_points_by_project on data_points (project_id, accepted_at, id);
-- What lists find data points by. Texts are included for the search by prefix: inner pages do not hold them.
create index data_points_by_time on data_points (project_id, occurred_at, id) include (label_key, source_key);
create index data_points_by_audience on data_points (project_id, audience, occurred_at, id);
create index data_points_by_author on data_points (project_id, author_key, occurred_at, id)
	where author_key is not null;

create table revisions (
	data_point    uuid not null,
	number        int not null,
	project_id    uuid not null,
	node_id       uuid not null,
	historic      boolean not null,             -- stored after a later effect; never the newest
	content       bytea,                        -- null if it is in a blob
	content_blob  jsonb,                        -- blob.Ref
	tokens        int,                          -- of the content in recall; null if it is in a blob
	metadata      text,                         -- JSON as sent; null: none, or in a blob
	metadata_blob jsonb,
	label         text,
	author        text,
	occurred_at   timestamptz not null,
	ingestion_id  uuid not null,
	accepted_at   timestamptz not null,
	audience      uuid,                         -- the last one while this was the newest; null: unknown
	primary key (data_point, number)
);

-- The phase is derived from the final phase, which events of the send's own stream set, and from the counts
-- of its items (derivePhase in rows.go). An item that is not fanned out is in no count.
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
	failure_open     boolean not null,          -- failed, and neither a deletion nor a newer revision overtakes it
	round            int not null,              -- number of retries
	ingestions       int not null,              -- charged items: those that created a revision,
	bytes            bigint not null,           -- or before the fan-out, those that the commit priced
	credit_tenths    bigint not null,
	month            text not null,
	fanned_out       boolean not null,          -- false for a batch between its commit and the end of its fan-out
	deleted_at       timestamptz,               -- when the send was deleted; it then lists deleted items only
	final_phase      text not null,             -- '', indexed or failed, set by its own stream
	final_at         timestamptz,
	searchable_at    timestamptz,               -- time of the watermark that ended it
	queued           int not null,
	processing       int not null,
	captured         int not null,
	failed           int not null,
	open_failures    int not null,              -- failed and not overtaken
	unchanged        int not null,              -- unchanged or moved
	deleted          int not null,
	last_deleted_at  timestamptz,               -- of the last deleted item
	position         bigint not null            -- of the event that set its phase; if captured, of the last capture
) with (fillfactor = 80);
create index sends_by_request on sends (request_id);
create index sends_pending_fan_out on sends (position) where not fanned_out;
-- Sends that wait for a watermark, and sends that the confirmer ends one by one.
create index sends_searchable on sends (position) where phase = 'captured' and failed = 0 and deleted = 0;
create index sends_confirmable on sends (position, id) where phase = 'captured' and (failed > 0 or deleted > 0);
create index sends_failed on sends (accepted_at, id) where failure_open;

-- What a replay knows of a send from the send's own stream, if all its data points were erased. The row
-- moves to table sends with the retained facts.
create table sends_without_items (
	id               uuid primary key,
	project_id       uuid not null,
	final_phase      text not null,
	final_at         timestamptz,
	failure_code     text,
	failure_message  text,
	round            int not null,
	deleted_at       timestamptz
);

-- The items of committed batches that are not fanned out, in the order sent: their data points, and their
-- sizes, by which they are charged if they create a revision.
create table batches (
	id            uuid primary key,
	data_points   uuid[] not null,
	bytes         bigint[] not null
);

-- Every blob that is not tombstoned. A blob without a reference at its deadline is swept; the blobs of an
-- erased owner are erased with it.
create table blobs (
	stream     text primary key,
	project_id uuid not null,
	owner      uuid not null,                   -- a data point, send, identity or bulk write, or the project (audiences)
	deadline   timestamptz not null,
	referred   boolean not null,                -- by an event of its owner
	send       uuid,                            -- the committed batch that it is the stage of
	holds      uuid[] not null,                 -- data points or identities with text in the stage
	fanned_out boolean not null default false,  -- the staged rows of a fanned-out bulk write
	position   bigint not null                  -- of its first event
);
create index blobs_by_owner on blobs (owner);
create index blobs_unreferenced on blobs (deadline) where not referred;

create table items (
	ingestion_id    uuid not null,
	ordinal         int not null,
	project_id      uuid not null,
	data_point      uuid not null,
	revision        int not null,               -- 0 if its data point was deleted before
	historic        boolean not null,           -- stored after a later effect
	outcome         text not null,              -- created, updated, unchanged, moved, deleted
	phase           text not null,              -- queued, processing, captured, failed, done; unindexed: captured,
	                                            -- but its send failed on the index; erased: see rows.go
	attempt         int not null,
	failure_code    text,
	failure_message text,
	overtaken       boolean not null,           -- failed or unindexed, but a newer revision is captured
	deleted_at      timestamptz,                -- of its data point; null if it created no revision
	outdated        boolean not null,           -- deleted when another send's revision was the newest
	batch           boolean not null,           -- of a batch; false for a single send
	bytes           bigint not null,            -- 0 if it created no revision, or if its data point was deleted
	due             text,                       -- the lane in which it may be leased, live or bulk; null unless it
	                                            -- is the lowest open revision of its data point (lanes.go)
	position        bigint not null,            -- of the event that set its phase
	primary key (ingestion_id, ordinal)
) with (fillfactor = 80);
-- A deletion reads only the items with a revision, however often the data point was sent unchanged.
create index items_by_data_point on items (data_point, revision) where outcome not in ('unchanged', 'moved');
create index items_stopped on items (data_point, revision) where phase in ('failed', 'unindexed') and not overtaken;
create index items_due on items (due, project_id, position, ingestion_id, ordinal) where due is not null;
create index items_waiting on items (position) where phase = 'queued' and attempt = 0 and not batch;
create index items_open on items (data_point, batch, revision) where phase in ('queued', 'processing');

-- The open items of batches by project. There is no row for a project without any.
create table bulk (
	project_id uuid primary key,
	items      bigint not null,
	bytes      bigint not null
);

-- Counts of sends by project and phase.
create table readiness (
	project_id    uuid primary key,
	raw           bigint not null,
	comprehension bigint not null,
	failed        bigint not null
);

-- What the sends of a project are charged in a UTC calendar month ("2026-11").
create table month_usage (
	project_id    uuid not null,
	month         text not null,
	ingestions    bigint not null,              -- items that created a revision, also if deleted since
	credit_tenths bigint not null,
	primary key (project_id, month)
);

-- What recall could return of a project, by audience. There is no row for an audience without data points.
create table scopes (
	project_id uuid not null,
	audience   uuid not null,                   -- zero: project-visible
	live       bigint not null,                 -- data points
	memories   bigint not null,                 -- of their newest captured revisions
	primary key (project_id, audience)
);

-- Streams of ours that somebody else ended or hid in the event store. A stream of a deleted data point is not in it.
create table damaged_streams (
	stream   text primary key,
	damage   text not null,                     -- deleted, hidden, truncated, aged or counted
	position bigint not null                    -- of the tombstone or of the metadata
);
create index damaged_streams_by_position on damaged_streams (position);

create table deletions (
	id           uuid primary key,
	project_id   uuid not null,
	ingestion_id uuid,                          -- the deleted send; null: a deletion by source ids
	accepted_at  timestamptz not null,
	fanned_out   boolean not null,
	cleaned      boolean not null,
	position     bigint not null
);
create index deletions_pending_fan_out on deletions (position) where not fanned_out;
create index deletions_open on deletions (position) where not cleaned;

-- Deleted data points that are not cleaned.
create table erasures (
	data_point  uuid primary key,
	project_id  uuid not null,
	deletion_id uuid not null,
	facts_kept  boolean not null,
	blobs       jsonb not null,                 -- names of streams, known once the facts are retained
	position    bigint not null
);
create index erasures_by_deletion on erasures (deletion_id);
create index erasures_open on erasures (position) where not facts_kept;

-- No statistics of text columns: Postgres would keep whole values in them, also of deleted rows.
alter table data_points alter source_id set statistics 0, alter author set statistics 0,
	alter label_key set statistics 0, alter label set statistics 0, alter content_blob set statistics 0,
	alter source_key set statistics 0, alter author_key set statistics 0;
alter table revisions alter content set statistics 0, alter content_blob set statistics 0,
	alter metadata set statistics 0, alter metadata_blob set statistics 0,
	alter label set statistics 0, alter author set statistics 0;
alter table sends alter failure_message set statistics 0;
alter table sends_without_items alter failure_message set statistics 0;
alter table items alter failure_message set statistics 0;
