-- The keys that sign tokens: the newest signs, those before it only verify. The private part is sealed.
create table ops.signing_keys (
	id         uuid primary key,
	public     bytea not null, -- PKIX
	seal_key   text not null,  -- name of the key that it is sealed with
	sealed     bytea not null, -- PKCS 8
	created_at timestamptz not null default clock_timestamp()
);
-- No statistics of sealed keys: Postgres would keep whole values there, also of keys that are gone.
alter table ops.signing_keys alter sealed set statistics 0;
