-- The identity records and audiences of each project, and its open bulk writes and removals.
create table projects (
	project_id uuid primary key,
	namespace  uuid not null,
	created_at timestamptz not null,
	rules_at   bigint not null,                 -- position of the newest change of its audiences, 0: none
	identities bigint not null default 0        -- records with known content
);

create table identities (
	id         uuid primary key,                -- stream.IdentityID
	project_id uuid not null,
	identity   text,                            -- null only in a replay: a bulk write created the record, its stage
	                                            -- is gone, and the event of the record follows. Such a record is
	                                            -- not readable, but may be a member of an audience
	traits     text not null,                   -- a JSON object of strings
	marks      bytea not null,                  -- for each trait, 16-byte hashes of its key and of key and value, sorted
	broad      boolean not null,                -- too many traits for table marks
	origin     text not null,
	created_at timestamptz not null,
	updated_at timestamptz not null,
	private    uuid not null,                   -- stream.PrivateAudienceID: the audience of the record alone
	born       bigint not null                  -- position of what created the record
) with (fillfactor = 80);
create index identities_by_private on identities (private);
alter table identities alter column marks set storage external; -- hashes cannot be compressed
-- The name is included for the search by prefix. Inner pages of the index do not hold it, so a removed name leaves it.
create index identities_by_time on identities (project_id, created_at, id) include (identity);
create index identities_by_id on identities (project_id, id); -- the order of a recount
create index identities_broad on identities (project_id) where broad;

-- Finds identities by trait: by a hash of project and key, and by one of project, key and value.
create table marks (
	mark        uuid not null,
	created_at  timestamptz not null,           -- of the record
	identity_id uuid not null,
	primary key (mark, created_at, identity_id)
);

-- The stream revision up to which each record is applied, also a removed one.
create table heads (
	id         uuid primary key,
	project_id uuid not null,
	revision   bigint not null,                 -- of the newest event, -1: none
	position   bigint not null,                 -- of the newest effect: of the stream, or the commit of a bulk write
	erased_at  timestamptz                      -- of the newest removal; null: never removed
) with (fillfactor = 80);
create index heads_erased on heads (project_id, erased_at) where erased_at is not null;

-- When an identity last wrote a data point or recalled, with or without a record.
create table seen (
	id         uuid primary key,
	project_id uuid not null,
	at         timestamptz not null
) with (fillfactor = 80);

-- Removals of records that are not cleared.
create table removals (
	id         uuid primary key,                -- the record
	project_id uuid not null,
	revision   bigint not null,
	removed_at timestamptz not null,
	position   bigint not null
);
create index removals_by_position on removals (position);

-- Bulk writes that are not fanned out, and their rows that are not written to the streams of the records.
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

-- Abandoned bulk writes, whose rows could not be read, with the number of unwritten rows.
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
	rule          text,                         -- an audience.Rule as JSON; null: fixed
	compiled      bytea,                        -- the rule with hashes for texts, which is matched; null: fixed
	created_at    timestamptz not null,
	put_at        timestamptz not null,         -- when its newest definition was put
	recomputed_at timestamptz not null,
	member_count  bigint not null,              -- of a rule; 0 if fixed: see table members
	outdated      boolean not null,             -- member_count is of the rule before, until a recount is done
	recounting    boolean not null,             -- a recount runs or waits (fold_audience.go)
	recounted_to  uuid not null,                -- the last identity that it has counted, zero: none
	recounted     bigint not null,              -- the members up to there
	position      bigint not null               -- of its newest event
) with (fillfactor = 80);
create index audiences_by_project on audiences (project_id, created_at, id);
create index audiences_in_recount on audiences (project_id) where recounting;

-- The members of fixed audiences: records that existed when the audience was put and were not removed since.
create table members (
	audience_id uuid not null,
	identity_id uuid not null,
	since       timestamptz not null,           -- since when each put has listed it
	primary key (audience_id, identity_id)
);
create index members_by_identity on members (identity_id);

-- The past: what decides who read what at a time. A row is valid from its time to that of the next row of the same
-- record or audience; a write that changes nothing has none. Who belonged to an audience is decided when somebody asks.
-- A removal deletes the rows of the record.
create table past_traits (
	identity_id uuid not null,
	from_at     timestamptz not null,
	traits      text not null,                  -- as in identities
	marks       bytea not null,
	primary key (identity_id, from_at)
);
alter table past_traits alter marks set storage external;
create table past_audiences (
	audience_id uuid not null,
	position    bigint not null,                -- of the put or the removal
	project_id  uuid not null,
	from_at     timestamptz not null,
	slug        text not null,
	kind        text not null,                  -- fixed, rule or removed
	rule        text,                           -- as in audiences; null: not a rule
	list        bigint not null,                -- fixed: the position in past_lists of its list, else 0
	sum         bytea not null,                 -- SHA-256 of the definition, by which an unchanged one is found
	primary key (audience_id, position)
);
-- The lists of fixed audiences as they were put, also ids without a record. Equal lists put in turn have one row.
create table past_lists (
	audience_id uuid not null,
	position    bigint not null,
	members     bytea not null,                 -- 16 bytes each, sorted
	primary key (audience_id, position)
);
alter table past_lists alter members set storage external;

-- No statistics of text columns: Postgres would keep whole values in them, also of deleted rows.
alter table identities alter identity set statistics 0, alter traits set statistics 0, alter marks set statistics 0;
-- A hash confirms a guessed trait, so no statistics of hashes either: the planner only needs to know that
-- most are rare.
alter table marks alter mark set statistics 0, alter mark set (n_distinct = -0.2);
alter table past_traits alter traits set statistics 0, alter marks set statistics 0;
alter table past_audiences alter slug set statistics 0, alter rule set statistics 0, alter sum set statistics 0;
alter table past_lists alter members set statistics 0;
alter table audiences alter slug set statistics 0, alter name set statistics 0, alter rule set statistics 0,
	alter compiled set statistics 0;
