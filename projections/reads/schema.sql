-- Who was shown which texts, by the read records of the log. There is no text here, and no name.

-- The days of projects of which the log has records. Those of a day without a row are removed in slices, and not shown.
create table days (
	project_id      uuid not null,
	day             text not null,              -- in UTC, as the stream has it
	organization_id uuid not null,
	primary key (project_id, day)
);

create table records (
	id          uuid not null,                  -- of the request
	part        int not null,
	project_id  uuid not null,
	day         text not null,
	revision    bigint not null,                -- of the event of the day that has it
	at          timestamptz not null,
	way         text not null,
	principal   text not null,
	identity    uuid,                           -- that it was asked as; null for none
	call        uuid,                           -- whose bodies were shown; null for another way
	texts       int not null,
	bytes       int not null,                   -- of the record in the log
	data_points bytea not null,                 -- the ids of those shown, 16 bytes each
	primary key (id, part)
);
create index records_by_time on records (project_id, at, id, part);
create index records_by_principal on records (project_id, principal, at, id, part);
create index records_by_identity on records (project_id, identity, at, id, part) where identity is not null;

create table shown (
	data_point uuid not null,
	at         timestamptz not null,
	id         uuid not null,
	part       int not null,
	primary key (data_point, at, id, part)
);
