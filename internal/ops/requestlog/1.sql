-- The request log. Its tables are partitioned by day (UTC); package requestlog creates and drops the partitions.

-- Each combination of values that a list of calls is filtered by.
create table ops.request_kinds (
	kind       bigint generated always as identity primary key,
	project_id uuid not null,
	endpoint   text not null,                   -- method and template: "POST /api/v1/ingest"
	status     int not null,
	error_code text not null,                   -- '' for none
	key_name   text not null,
	key_prefix text not null,
	name_key   bytea not null,                  -- SHA-256 of key_name, since inner pages of an index keep deleted keys
	unique (project_id, endpoint, status, error_code, name_key, key_prefix)
);

create table ops.requests (
	project_id       uuid not null,
	received_at      timestamptz not null,      -- the first 48 bits of request_id are its milliseconds
	request_id       uuid not null,
	kind             bigint not null,
	path             text not null,             -- without query; the template once a source id in it is blanked
	duration_us      bigint not null,
	identity         text,
	ingestion_id     uuid,                      -- the send that the call made or queued again
	credit_tenths    bigint,                    -- null where nothing is metered
	request_bytes    bigint not null,
	response_bytes   bigint not null,
	request_headers  text not null,             -- JSON
	response_headers text not null,
	webhook          text,                      -- JSON
	plan             text not null,             -- decides how long the bodies are kept
	ids              uuid[],                    -- data points, memories and source nodes that the call carried or returned
	hits             uuid[],                    -- what a recall returned, in the order of ranks
	primary key (project_id, received_at, request_id)
) partition by range (received_at);
create index requests_by_kind on ops.requests (kind, received_at, request_id);
create index requests_by_send on ops.requests (ingestion_id) where ingestion_id is not null;
create index requests_by_ids on ops.requests using gin (ids);

-- The bodies of calls, as long as they are kept. The first byte of a body is its encoding.
create table ops.request_payloads (
	project_id         uuid not null,
	received_at        timestamptz not null,
	request_id         uuid not null,
	plan               text not null,
	request            bytea,
	response           bytea,
	request_truncated  boolean not null,
	response_truncated boolean not null,
	primary key (project_id, received_at, request_id)
) partition by range (received_at);
-- Bodies of plans with a shorter retention than others are deleted by their time. They are written in
-- the order of time, so that a block range index, which costs writers next to nothing, finds them.
create index request_payloads_by_time on ops.request_payloads using brin (received_at) with (pages_per_range = 16);

-- No statistics of customer text: Postgres would keep whole values there.
alter table ops.requests alter path set statistics 0, alter identity set statistics 0,
	alter request_headers set statistics 0, alter response_headers set statistics 0, alter webhook set statistics 0,
	alter ids set statistics 0, alter hits set statistics 0;
alter table ops.request_kinds alter name_key set statistics 0;
alter table ops.request_payloads alter request set statistics 0, alter response set statistics 0;

-- How many calls began in a step of 1, 15 or 180 minutes, written with the calls.
create table ops.request_counts (
	project_id uuid not null,
	step       smallint not null,
	start      timestamptz not null,
	kind       bigint not null,
	calls      bigint not null,
	primary key (project_id, step, start, kind)
) with (fillfactor = 70);

-- Data points whose bodies were blanked lately. A call that was still in memory then is written
-- without its bodies.
create table ops.blanked_points (
	data_point uuid primary key,
	blanked_at timestamptz not null default now()
);
create index blanked_points_by_time on ops.blanked_points (blanked_at);

-- Projects of which a person was erased lately. A call that was still in the memory of any process then is written
-- without its bodies, its identity and the parameters of its path: the name of the person is kept nowhere.
create table ops.blanked_projects (
	project_id uuid primary key,
	blanked_at timestamptz not null
);
