-- +goose Up
-- Who works on a data point; a hint only, the lock is the event that starts a derivation.
create table ops.leases (
	data_point uuid primary key,
	holder     text not null,
	until      timestamptz not null
);
