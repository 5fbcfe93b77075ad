-- Who holds the lock of an organization's row is alone with what the organization may still take.
create table ops.meters (
	organization_id uuid primary key
);

-- What sends under way have taken of limits. A reservation counts until its send is in projection datapoints; if the
-- send is never made, until the row is removed. Tries of one idempotency key share their send.
create table ops.reservations (
	send_id         uuid not null,
	try             uuid not null,
	organization_id uuid not null,
	project_id      uuid not null,
	month           text not null,              -- the UTC calendar month that it counts in, as "2006-01"
	items           bigint not null,
	credit_tenths   bigint not null,
	until           timestamptz not null,       -- by the clock of the database: nothing of it is appended later
	primary key (send_id, try)
);
create index reservations_by_organization on ops.reservations (organization_id);

-- Recalls that were answered and events that webhooks received, and that are not known to be in the log. Rows of the
-- zero flush still count; another flush is a sum on its way into a usage-<project>-<month> stream, and no longer counts
-- once usage.flushes has it. They stay outside the log for minutes.
create table ops.charges (
	project_id      uuid not null,
	month           text not null,
	flush_id        uuid not null,
	organization_id uuid not null,
	recalls         bigint not null,            -- below 0 if what was flushed was given back
	recall_tenths   bigint not null,
	webhook_events  bigint not null default 0,
	webhook_tenths  bigint not null default 0,
	since           timestamptz not null default now(), -- when the row began
	taken           timestamptz,                -- when the flush was last handed to a process
	after_revision  bigint,                     -- of the stream, before the sum was first appended to it; else null
	primary key (project_id, month, flush_id)
);
create index charges_by_organization on ops.charges (organization_id);

-- When identities recalled, where the log does not know it yet: the rows go once their flush is in every projection
-- that shows them. They stay outside the log for an hour.
create table ops.seen (
	project_id      uuid not null,
	identity_id     uuid not null,
	flush_id        uuid not null,
	organization_id uuid not null,
	at              timestamptz not null,
	since           timestamptz not null default now(), -- when the row began
	primary key (project_id, identity_id, flush_id)
);
create index seen_by_flush on ops.seen (flush_id) where flush_id <> '00000000-0000-0000-0000-000000000000';
create index seen_by_since on ops.seen (since) where flush_id = '00000000-0000-0000-0000-000000000000';
