-- +goose Up
-- Who holds the lock of an organization's row is alone with what the organization may still take.
create table ops.meters (
	organization_id uuid primary key
);

-- What sends under way have taken of limits. One counts until its send is among the facts of projection datapoints; where it
-- never comes to be, until the row is removed. Tries of one idempotency key share their send.
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
