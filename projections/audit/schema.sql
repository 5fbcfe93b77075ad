-- The trees of the audit log: the records of events, hashed in pairs. There is no text here, and no row for each leaf.

-- The organizations of projects, whose leaves theirs are.
create table projects (
	project_id      uuid primary key,
	organization_id uuid not null
);

create table trees (
	organization_id     uuid primary key,           -- zero for that of the deployment
	size                bigint not null,
	position            bigint not null,            -- of the event of the last leaf
	happened            bigint not null,            -- the size up to the last leaf of another category than audit
	since               timestamptz,                -- of the first such leaf that no checkpoint covers
	origin              text not null,
	verifiers           jsonb not null,             -- the public keys of the origin
	checkpoint          text not null,              -- the newest note of the origin
	checkpoint_size     bigint not null,
	checkpoint_at       timestamptz,                -- the time of its event; without one, of that which began the origin
	checkpoint_position bigint not null,            -- of that event
	cosigned            text not null,              -- the newest note that a witness signed
	cosigned_size       bigint not null,
	cosigned_at         timestamptz
);
create index trees_due on trees (since) where since is not null;

-- 256 leaves each, the last one of a tree fewer.
create table bundles (
	organization_id uuid not null,
	n               bigint not null,
	first_position  bigint not null,                -- of its first leaf
	records         bytea not null,                 -- 32 bytes each
	positions       bytea not null,                 -- of their events, 8 bytes each, big-endian
	primary key (organization_id, n)
);
create index bundles_by_position on bundles (organization_id, first_position);
alter table bundles alter column records set storage external;

-- The tiles above level 0, whose hashes are those of the records.
create table tiles (
	organization_id uuid not null,
	level           int not null,
	n               bigint not null,
	hashes          bytea not null,                 -- 32 bytes each, 256 but in the last one of a level
	primary key (organization_id, level, n)
);
alter table tiles alter column hashes set storage external;

-- The leaves of pages that wait: an event before them may have left the log, and its kept record comes later.
create table pending (
	position bigint primary key,                    -- of the last event of the page
	until    bigint not null,                       -- the head of the log when the page was applied
	leaves   bytea not null
);
alter table pending alter column leaves set storage external;

-- The kept records of events whose place in a tree waits.
create table kept (
	position bigint primary key,
	leaf     bytea not null
);
