-- Requests of programs that are too long for an address that a sign-in carries along, by a part of the hash of a random
-- id.
create table ops.oauth_requests (
	id         uuid primary key,
	query      text not null,
	expires_at timestamptz not null
);
create index oauth_requests_by_end on ops.oauth_requests (expires_at);
alter table ops.oauth_requests alter query set statistics 0;

-- When a client last had a grant, to a day: null for one that never had any. Those from before count from now on.
alter table ops.oauth_clients add granted_at timestamptz;
update ops.oauth_clients set granted_at = now();
