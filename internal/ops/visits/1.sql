-- What people did without a change, until it is in the log. Refused sign-ins of a person within a window are one row,
-- which is due at the end of the window. A row without an organization is of each of which the person is a member.
create table ops.visits (
	number          bigint generated always as identity primary key,
	id              uuid not null unique,
	person_id       uuid,
	organization_id uuid,
	event           text not null,
	payload         text not null, -- with the network address and the browser
	request_id      uuid,
	attempts        integer not null,
	window_at       timestamptz, -- the beginning of the window, null for what is no refused sign-in
	visited_at      timestamptz not null,
	last_at         timestamptz not null,
	due_at          timestamptz not null,
	unique (person_id, window_at)
);
create index visits_by_due on ops.visits (due_at);
alter table ops.visits alter event set statistics 0, alter payload set statistics 0;
