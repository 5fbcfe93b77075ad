-- +goose Up
-- Projects of which a person was erased lately. A call that was still in the memory of any process then is written
-- without its bodies, its identity and the parameters of its path: the name of the person is kept nowhere.
create table ops.blanked_projects (
	project_id uuid primary key,
	blanked_at timestamptz not null
);
