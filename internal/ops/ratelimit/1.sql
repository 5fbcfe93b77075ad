-- Events of webhooks in the last minute, over all processes: a row is a number of slots that one process took at once.
-- Nothing depends on it after a crash of the database, so it is not in the write-ahead log.
create unlogged table ops.webhook_leases (
	webhook_id text not null,
	lease_id   uuid not null,
	taken_at   timestamptz not null,
	slots      integer not null,
	primary key (webhook_id, lease_id)
);
create index webhook_leases_by_time on ops.webhook_leases (taken_at);
