-- Forms of the console that were sent, so that none is sent twice. The token is a hash.
create table ops.console_forms (
	session_id uuid not null,
	token      bytea not null,
	answer     text, -- where the browser went on to, null while the form is worked on
	until      timestamptz not null,
	primary key (session_id, token)
);
create index console_forms_by_end on ops.console_forms (until);
-- What a page shows once, sealed, for a minute. A crash of the database may lose it, and the write-ahead log must not
-- have it.
create unlogged table ops.console_shown (
	id         uuid primary key,
	session_id uuid not null,
	path       text not null,
	seal_key   text not null, -- name of the key that it is sealed with
	sealed     bytea not null,
	until      timestamptz not null
);
create index console_shown_by_end on ops.console_shown (until);
-- No statistics of sealed values and of addresses of pages: Postgres would keep some of them.
alter table ops.console_shown alter sealed set statistics 0, alter path set statistics 0;
alter table ops.console_forms alter answer set statistics 0;
