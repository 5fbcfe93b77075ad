-- Who is in the directory of each project, the audiences that they belong to, and the bulk writes and removals that stand open.
create table projects (
	project_id uuid primary key,
	namespace  uuid not null,
	keyed      boolean not null,                -- ids are made in a namespace that is derived from this one with the hash key
	created_at timestamptz not null,
	rules_at   bigint not null,                 -- position of the newest change of its audiences, 0 for none
	identities bigint not null default 0        -- how many records somebody can read
);

create table identities (
	id         uuid primary key,                -- stream.IdentityID
	project_id uuid not null,
	identity   text,                            -- null in a replay only: a bulk write made the record, its stage is gone, and its
	                                            -- own event brings it; nobody reads it, but an audience may have it
	traits     text not null,                   -- a JSON object of strings
	marks      bytea not null,                  -- for each trait 16 bytes of a hash of its key and 16 of key and value, sorted
	broad      boolean not null,                -- more traits than table marks takes
	origin     text not null,
	created_at timestamptz not null,
	updated_at timestamptz not null
) with (fillfactor = 80);
alter table identities alter column marks set storage external; -- hashes cannot be compressed
create index identities_by_time on identities (project_id, created_at, id);
create index identities_broad on identities (project_id) where broad;

-- What identities are found by: a hash of the project and a trait's key, and one of the project, its key and its value.
create table marks (
	mark        uuid not null,
	created_at  timestamptz not null,           -- of the record
	identity_id uuid not null,
	primary key (mark, created_at, identity_id)
);

-- How far the stream of each record was read, also that of one that was removed.
create table heads (
	id         uuid primary key,
	project_id uuid not null,
	revision   bigint not null,                 -- of the newest event, -1 for none
	position   bigint not null                  -- of the newest effect: an event of the stream, or the commit of a bulk write
) with (fillfactor = 80);

-- When an identity was last the author of a data point, or recalled, whether there is a record or not.
create table seen (
	id         uuid primary key,
	project_id uuid not null,
	at         timestamptz not null
) with (fillfactor = 80);

-- Removals that were not said to be cut off.
create table removals (
	id         uuid primary key,                -- the record
	project_id uuid not null,
	revision   bigint not null,
	removed_at timestamptz not null,
	position   bigint not null
);
create index removals_by_position on removals (position);

-- Bulk writes that are not fanned out, and their rows that do not stand in the streams of their records.
create table bulks (
	id          uuid primary key,
	project_id  uuid not null,
	accepted_at timestamptz not null,
	position    bigint not null                 -- of the commit
);
create table bulk_rows (
	identity_id uuid not null,
	bulk_id     uuid not null,
	project_id  uuid not null,
	position    bigint not null,                -- of the commit
	primary key (identity_id, bulk_id)
);
create index bulk_rows_by_bulk on bulk_rows (bulk_id);

-- Bulk writes that were given up, since their rows could not be read, with how many rows never came to stand.
create table lost_bulks (
	id         uuid primary key,
	project_id uuid not null,
	rows       int not null
);

create table audiences (
	id            uuid primary key,
	project_id    uuid not null,
	slug          text not null,
	name          text not null,
	kind          text not null,                -- fixed or rule
	rule          text,                         -- an audience.Rule as JSON, null for a fixed one
	compiled      bytea,                        -- the rule with hashes in place of its texts: what is matched; null for a fixed one
	created_at    timestamptz not null,
	recomputed_at timestamptz not null,
	member_count  bigint not null,              -- of a rule: the identities that it reaches; of a fixed one 0, table members knows
	position      bigint not null               -- of its newest event
) with (fillfactor = 80);
create index audiences_by_project on audiences (project_id, created_at, id);

-- The members of fixed audiences: records that were there when the audience was put, and were not removed since.
create table members (
	audience_id uuid not null,
	identity_id uuid not null,
	primary key (audience_id, identity_id)
);
create index members_by_identity on members (identity_id);

-- No statistics of texts: Postgres would keep whole values there, also of what is deleted.
alter table identities alter identity set statistics 0, alter traits set statistics 0, alter marks set statistics 0;
-- A hash of a trait confirms a guess of it. The planner needs to know only that most are rare.
alter table marks alter mark set statistics 0, alter mark set (n_distinct = -0.2);
alter table audiences alter slug set statistics 0, alter name set statistics 0, alter rule set statistics 0, alter compiled set statistics 0;
