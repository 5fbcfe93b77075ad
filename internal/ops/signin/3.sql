-- When the person of a session last proved to be that person: null for sessions from before, which prove nothing.
alter table ops.signin_sessions add proved_at timestamptz;
