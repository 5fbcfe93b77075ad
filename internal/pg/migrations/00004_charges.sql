-- +goose Up
-- Recalls that were answered, and are not known to be in the log. Rows of the zero flush still count; another flush is a sum on
-- its way into a usage-<project>-<month> stream, and no longer counts once usage.flushes has it.
create table ops.charges (
	project_id      uuid not null,
	month           text not null,
	flush_id        uuid not null,
	organization_id uuid not null,
	recalls         bigint not null,            -- below 0 where what was flushed was given back
	recall_tenths   bigint not null,
	since           timestamptz not null default now(),
	after_revision  bigint,                     -- of the stream, before the sum was first appended to it; null while it was not
	primary key (project_id, month, flush_id)
);
create index charges_by_organization on ops.charges (organization_id);

-- When identities recalled, as far as the log does not know it: the rows go once their flush is in every projection that shows them.
create table ops.seen (
	project_id      uuid not null,
	identity_id     uuid not null,
	flush_id        uuid not null,
	organization_id uuid not null,
	at              timestamptz not null,
	primary key (project_id, identity_id, flush_id)
);
create index seen_by_flush on ops.seen (flush_id) where flush_id <> '00000000-0000-0000-0000-000000000000';
