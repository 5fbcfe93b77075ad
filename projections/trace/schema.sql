-- The ids of all nodes that ever were, and where their events are. There is no text here, so that the
-- rows outlive the deletion of a data point.

-- The revisions of data points. After the erasure of its data point a row has an id and a number only.
create table revisions (
	node_id    uuid primary key,
	project_id uuid not null,
	data_point uuid not null,
	number     int not null,
	accepted   bigint,                          -- stream revision of its event; null: erased
	effect     bigint,                          -- position at which it takes effect; null: erased
	derived    bigint,                          -- stream revision of its newest memories; null: none, or erased
	leaf       bytea,                           -- the record of the event that accepted it (docs/leaf.md); null: erased
	derived_leaf bytea                          -- the record of the event with its newest memories
) with (fillfactor = 50); -- room for the second write, when its memories come, which then leaves the indexes alone
create index revisions_by_effect on revisions (data_point, effect);

-- The organizations of projects, which leaves name.
create table projects (
	id              uuid primary key,
	organization_id uuid not null
);

create table memories (
	id      uuid primary key,
	node_id uuid not null                       -- of its revision
);

create table deleted (
	data_point uuid primary key,
	project_id uuid not null,
	request_id uuid not null,
	deleted_at timestamptz not null
);
