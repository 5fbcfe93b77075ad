-- The erasures that have ended, without the names. What was done is in the stream of each.
create table ops.person_erasures_ended (
	id          uuid primary key,
	project_id  uuid not null,
	ended_at    timestamptz not null,
	data_points int not null
);
create index person_erasures_ended_by_time on ops.person_erasures_ended (project_id, ended_at desc, id);
