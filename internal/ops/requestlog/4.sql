-- The person who made the call at the console, or sent an event of a webhook there. The name is found when the call is
-- shown, so that it goes with the person. Null for the calls of programs.
alter table ops.requests add person_id uuid;
alter table ops.requests alter person_id set statistics 0;
