-- Who works on a data point; a hint only, the lock is an append at an exact revision. A lease that ran out is a sign
-- that its holder may have died of the item.
create table ops.leases (
	data_point uuid primary key,
	holder     text not null,
	until      timestamptz not null
);
