-- What the calls of a step were charged. Costs are read from the longest step, so only that gets those of before.
alter table ops.request_counts add credit_tenths bigint not null default 0;
update ops.request_counts c set credit_tenths = r.tenths
	from (
		select project_id, kind, date_bin('180 minutes', received_at, timestamptz 'epoch') as start,
			sum(credit_tenths)::bigint as tenths
		from ops.requests where credit_tenths is not null group by 1, 2, 3
	) r
	where c.step = 180 and c.project_id = r.project_id and c.kind = r.kind and c.start = r.start;
