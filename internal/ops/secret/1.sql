-- Clear values of project keys, sealed with AES-256-GCM, so that they can be shown again; only hashes are in the log.
create table ops.sealed_keys (
	key_id   uuid primary key,
	seal_key text not null, -- name of the key that it is sealed with
	sealed   bytea not null,
	kept_at  timestamptz not null default now()
);
create index sealed_keys_by_seal_key on ops.sealed_keys (seal_key);
-- No statistics of sealed keys: Postgres would keep whole values there, also of keys that are gone.
alter table ops.sealed_keys alter sealed set statistics 0;
