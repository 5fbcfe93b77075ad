-- A constant, sealed with the key of the database: a process none of whose seal keys opens it is refused at its start.
create table ops.seal_key_check (
	one      boolean primary key default true check (one),
	seal_key text not null, -- name of the key that it is sealed with
	sealed   bytea not null
);
alter table ops.seal_key_check alter seal_key set statistics 0, alter sealed set statistics 0;
