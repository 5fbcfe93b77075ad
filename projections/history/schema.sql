-- The events that people look for. There is no text and no value here: these are read from the log when they are shown.

create table entries (
	id              uuid primary key,           -- of the event; of a deleted data point, derived from its id
	organization_id uuid not null,
	project_id      uuid,                       -- null: of the organization
	at              timestamptz not null,       -- of its command
	type            text not null,              -- the name that it is stored under
	principal       text not null,
	stream          text,                       -- null: it leaves the log with what it is about
	revision        bigint,
	former_stream   text,                       -- of the event that had the values before; null: none had
	former_revision bigint,
	of_thing        boolean not null            -- only in the history of what it is about
);
create index entries_of_organization on entries (organization_id, at, id) where not of_thing;
create index entries_of_project on entries (project_id, at, id) where not of_thing;
create index entries_by_principal on entries (organization_id, principal, at, id) where not of_thing;
create index entries_by_type on entries (organization_id, type, at, id) where not of_thing;
create index entries_by_stream on entries (stream);

-- What the events are about: "member:<uuid>", "webhook:<id>".
create table about (
	thing text not null,
	at    timestamptz not null,
	id    uuid not null,
	primary key (thing, at, id)
);
create index about_by_entry on about (id);

-- The event that has the values of a setting now, with a hash of them. That of traits is removed with their identity.
create table settings (
	key      text primary key,
	stream   text not null,
	revision bigint not null,
	hash     bytea not null
);

-- The last names of things, which outlive these. No name is a text of a customer.
create table names (
	thing text primary key,
	name  text not null
);

create table projects (
	id              uuid primary key,
	organization_id uuid not null
);

-- No statistics of names, nor of what confirms a guess of values: Postgres would keep some of them.
alter table names alter name set statistics 0;
alter table settings alter hash set statistics 0;
