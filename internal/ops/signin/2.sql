-- Browsers in which people signed in before. A row lets nobody in: attempts from there are counted apart.
create table ops.signin_browsers (
	token     bytea primary key, -- SHA-256
	person_id uuid not null,
	used_at   timestamptz not null -- the last sign-in
);
create index signin_browsers_by_person on ops.signin_browsers (person_id, used_at);
create index signin_browsers_by_use on ops.signin_browsers (used_at);
alter table ops.signin_browsers alter token set statistics 0;
