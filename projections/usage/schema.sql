-- What balances follow from, next to what data points cost (datapoints.month_usage): plans, grants, and charged recalls
-- and received events.
create table projects (
	project_id      uuid primary key,
	organization_id uuid not null
);
create index projects_by_organization on projects (organization_id);

create table plans (
	organization_id uuid not null,
	revision        bigint not null,            -- of the organization's stream
	plan            text not null,
	month           text not null,
	charged_tenths  bigint not null,            -- by all its projects in the month, when the plan was set
	primary key (organization_id, revision)
);

create table grants (
	organization_id uuid not null,
	revision        bigint not null,
	kind            text not null,              -- starting, bought
	month           text not null,
	tenths          bigint not null,
	primary key (organization_id, revision)
);

create table charges (
	project_id      uuid not null,
	month           text not null,
	organization_id uuid not null,
	recalls         bigint not null,
	recall_tenths   bigint not null,
	webhook_events  bigint not null,
	webhook_tenths  bigint not null,
	revision        bigint not null,            -- of the stream, the newest that is summed up here
	primary key (project_id, month)
);
create index charges_by_organization on charges (organization_id);

-- The newest flushes of each stream: a sum of ops.charges that is here is in charges too, and counts only there.
create table flushes (
	flush_id   uuid primary key,
	project_id uuid not null,
	month      text not null,
	revision   bigint not null
);
create index flushes_by_stream on flushes (project_id, month, revision);
