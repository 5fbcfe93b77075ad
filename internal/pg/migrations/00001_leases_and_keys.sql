-- +goose Up
-- Who works on a data point; a hint only, the lock is the event that starts a derivation.
create table ops.leases (
	data_point uuid primary key,
	holder     text not null,
	until      timestamptz not null
);

-- API keys that a console may show again, sealed under the deployment's key.
create table ops.sealed_keys (
	key_id uuid primary key,
	sealed bytea not null
);
