package history

// organizationEntries are the kinds of the organization, of its members and of what they let in.
var organizationEntries = map[string]Entry{
	"registry.organization-created.v1": {
		Text: "{by} created the organization {name}", Needs: Manage,
		Setting: "plan organizationId", Values: "plan",
	},
	"organization.management-key-set.v1": {
		Text: "{by} set the management key …{suffix}", Needs: Manage,
		Setting: "management-key organizationId", Values: "keyId prefix suffix", Hidden: "hash",
	},
	"organization.member-added.v1": {
		Text: "{by} made {memberId|person} a member with the role {role}", Needs: Manage,
		About: "member=memberId", Setting: "role organizationId memberId", Values: "role",
	},
	"organization.member-role-set.v1": {
		Text: "{by} gave {memberId|person} the role {role}", Needs: Manage,
		About: "member=memberId", Setting: "role organizationId memberId", Values: "role",
	},
	"organization.member-removed.v1": {
		Text: "{by} removed the member {memberId|person}", Needs: Manage,
		About: "member=memberId", Setting: "role organizationId memberId", Values: "role",
	},
	"organization.project-access-set.v1": {
		Cases: []Case{{"access", "", "{by} took the access to {projectId|project} from {memberId|person}"}},
		Text:  "{by} gave {memberId|person} {access} in {projectId|project}", Needs: Manage,
		About: "member=memberId", Setting: "access organizationId memberId projectId", Values: "access",
	},
	"organization.member-offered.v1": {
		Text: "{by} offered a membership with the role {role}, until {expiresAt|time}", Needs: Manage,
		About: "offer=offerId", Hidden: "recipient",
	},
	"organization.offer-ended.v1": {
		Cases: []Case{
			{"end", "accepted", "{memberId|person} accepted an offer of a membership"},
			{"end", "declined", "{by} declined an offer of a membership"},
			{"end", "withdrawn", "{by} withdrew an offer of a membership"},
		},
		Text: "An offer of a membership expired", Needs: Manage, About: "offer=offerId member=memberId",
	},
	"organization.second-factor-set.v1": {
		Cases: []Case{{"required", "false", "{by} made the second factor optional"}},
		Text:  "{by} required a second factor of everybody", Needs: Manage,
		Setting: "second-factor organizationId", Values: "required",
	},
	"organization.visits-kept-set.v1": {
		Text: "{by} set that visits are kept {days|number} days", Needs: Manage,
		Setting: "visits-kept organizationId", Values: "days|number",
	},
	"organization.auditor-texts-set.v1": {
		Cases: []Case{{"allowed", "false", "{by} took the texts from auditors"}},
		Text:  "{by} let auditors see texts", Needs: Manage,
		Setting: "auditor-texts organizationId", Values: "allowed",
	},
	"organization.sign-in-reset.v1": {
		Cases: []Case{{"reset", "second-factor", "{by} reset the second factor of {memberId|person}"}},
		Text:  "{by} reset the password of {memberId|person}", Needs: Manage, About: "member=memberId",
	},
	"organization.grant-approved.v1": {
		Cases: []Case{{"projectId", "", "{by} let a client of {memberId|person} in: {scopes|list}"}},
		Text:  "{by} let a client of {memberId|person} into {projectId|project}: {scopes|list}", Needs: Manage,
		About:   "member=memberId grant=grantId",
		Setting: "grant organizationId grantId", Values: "scopes|list projectId|project",
	},
	"organization.grant-revoked.v1": {
		Text: "{by} ended the access of a client of {memberId|person}", Needs: Manage,
		About:   "member=memberId grant=grantId",
		Setting: "grant organizationId grantId", Values: "scopes|list projectId|project",
	},
	"organization.agent-approved.v1": {
		Cases: []Case{{"projectId", "", "{by} approved an agent of {memberId|person}: {scopes|list}"}},
		Text:  "{by} approved an agent of {memberId|person} for {projectId|project}: {scopes|list}", Needs: Manage,
		About:   "member=memberId agent=agentId",
		Setting: "agent organizationId agentId", Values: "scopes|list projectId|project",
	},
	"organization.agent-denied.v1": {
		Text: "{by} refused an agent of {memberId|person}", Needs: Manage, About: "member=memberId agent=agentId",
	},
	"organization.agent-revoked.v1": {
		Text: "{by} revoked an agent", Needs: Manage,
		About:   "agent=agentId",
		Setting: "agent organizationId agentId", Values: "scopes|list projectId|project",
	},
	"organization.agent-stopped.v1": {
		Text: "{by} stopped an agent and its tokens", Needs: Manage, About: "agent=agentId",
	},
	"organization.plan-set.v1": {
		Text: "{by} set the plan {plan}", Needs: Manage, Setting: "plan organizationId", Values: "plan",
	},
	"organization.credits-granted.v1": {
		Text: "{by} granted {tenths|credits} credits ({kind})", Needs: Manage,
	},
	"organization.spend-cap-set.v1": {
		Cases: []Case{{"tenths", "", "{by} removed the spend cap"}},
		Text:  "{by} set the spend cap to {tenths|credits} credits a month", Needs: Manage,
		Setting: "spend-cap organizationId", Values: "tenths|credits",
	},
	"organization.prepared.v1": {Elsewhere: "the last step of the creation, which has a row"},
	"person.registered.v1":     {Elsewhere: "the address of a person; who became a member has a row"},
	"person.join-begun.v1":     {Elsewhere: "a step of becoming a member, which has a row"},
	"person.address-changed.v1": {
		Elsewhere: "a person's own address, which concerns all organizations of the person",
	},
	"person.removed.v1":   {Elsewhere: "the end of the last membership, which has a row"},
	"address.claimed.v1":  {Elsewhere: "a keyed hash of an address; who became a member has a row"},
	"address.released.v1": {Elsewhere: "a keyed hash of an address; the end of a membership has a row"},
	"offer.addressed.v1":  {Elsewhere: "the address of an offer, which has a row"},
}
