-- An invitation is the link of an offer, and has no person. Those of before were links of members, who get a reset.
delete from ops.signin_links where purpose = 'invite';
alter table ops.signin_links add offer_id uuid unique;
