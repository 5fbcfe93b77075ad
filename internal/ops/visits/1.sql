-- What people did without a change, until it is in the log. What strangers can cause of a person within a window is one
-- row for each kind, which is due at the end of the window. A row without an organization is of each that has the
-- person as a member.
create table ops.visits (
	number          bigint generated always as identity primary key,
	id              uuid not null unique,
	person_id       uuid,
	organization_id uuid,
	event           text not null,
	payload         text not null, -- with the network address and the browser
	request_id      uuid,
	attempts        integer not null,
	principal       text not null,
	window_key      text not null, -- the kind, where there is a window
	window_at       timestamptz, -- the beginning of the window
	visited_at      timestamptz not null,
	last_at         timestamptz not null,
	due_at          timestamptz not null,
	unique (person_id, window_key, window_at)
);
create index visits_by_due on ops.visits (due_at);
alter table ops.visits alter event set statistics 0, alter payload set statistics 0;
