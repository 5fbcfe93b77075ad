-- The memories of every captured revision, with their inputs. Text is stored as bytes, since a source may
-- contain U+0000.
create table memories (
	id            uuid primary key,
	project_id    uuid not null,
	data_point    uuid not null,
	revision      int not null,
	ordinal       int not null,
	kind          text not null,
	content       bytea not null,
	excerpt       bytea not null,
	span_start    int not null,
	span_end      int not null,
	subject       uuid,                         -- only compared, so it is a hash (TextKey in project.go); null for none
	attribute     uuid not null,
	occurred_at   timestamptz not null,
	resolved_from timestamptz,
	resolved_to   timestamptz,
	derived_at    timestamptz not null,
	position      bigint not null
);
create index memories_by_data_point on memories (data_point, revision);
create index memories_by_project on memories (project_id, derived_at, id);
create index memories_by_statement on memories (project_id, subject, attribute, occurred_at, id)
	where kind = 'claim' and subject is not null;

create table edges (
	input_id   uuid not null,
	derived_id uuid not null,
	project_id uuid not null,
	data_point uuid not null,
	primary key (derived_id, input_id)
);
create index edges_by_input on edges (input_id);

-- The newest captured revision of each live data point. Memories of older revisions are historic.
create table captured (
	data_point uuid primary key,
	project_id uuid not null,
	revision   int not null,
	position   bigint not null                  -- of the event that captured it
);

-- Deleted data points whose streams may still be written: memories that a worker derives too late are ignored.
create table gone (
	data_point  uuid primary key,
	project_id  uuid not null,
	deletion_id uuid not null
);
create index gone_by_deletion on gone (deletion_id);

-- No statistics of text columns: Postgres would keep whole values in them, also of deleted rows.
alter table memories alter content set statistics 0, alter excerpt set statistics 0, alter subject set statistics 0,
	alter attribute set statistics 0;
