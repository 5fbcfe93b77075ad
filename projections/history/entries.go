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

// projectEntries are the kinds of the settings of a project.
var projectEntries = map[string]Entry{
	"registry.project-created.v1": {
		Text: "{by} created the project {slug}", Setting: "description projectId", Values: "name description",
	},
	"project.described.v1": {
		Text: "{by} described the project {projectId|project}", Setting: "description projectId", Values: "name description",
	},
	"project.archived.v1":   {Text: "{by} archived the project {projectId|project}"},
	"project.unarchived.v1": {Text: "{by} took the project {projectId|project} out of the archive"},
	"project.caps-set.v1": {
		Text: "{by} set the caps of {projectId|project}", Needs: Manage, About: "caps=projectId",
		Setting: "caps projectId", Values: "ingestionCap|number creditCapTenths|credits",
	},
	"project.reads-set.v1": {
		Cases: []Case{{"mode", "off", "{by} stopped the records of who reads texts of {projectId|project}"}},
		Text:  "{by} had it recorded for {days|number} days who reads texts of {projectId|project}", Needs: Manage,
		About: "reads=projectId", Setting: "reads projectId", Values: "mode days|number",
	},
	"project.key-created.v1": {
		Text: "{by} created the key {name} …{suffix}", Needs: Manage, About: "key=keyId", Hidden: "hash",
	},
	"project.key-revoked.v1": {Text: "{by} revoked the key {keyId|key}", Needs: Manage, About: "key=keyId"},
	"project.key-revealed.v1": {
		Text: "{by} revealed the key {keyId|key}", Needs: Manage, About: "key=keyId",
	},
	"project.webhook-created.v1": {
		Text: "{by} created the webhook {settings.name}", Needs: Write, About: "webhook=webhookId",
		Setting: "webhook projectId webhookId", Values: webhookValues, Named: "settings.name", Hidden: "tokenHash tokenId",
	},
	"project.webhook-changed.v1": {
		Text: "{by} changed the webhook {settings.name}", Needs: Write, About: "webhook=webhookId",
		Setting: "webhook projectId webhookId", Values: webhookValues, Named: "settings.name",
	},
	"project.webhook-paused.v1": {
		Text: "{by} paused the webhook {webhookId|webhook}", Needs: Write, About: "webhook=webhookId",
	},
	"project.webhook-resumed.v1": {
		Text: "{by} resumed the webhook {webhookId|webhook}", Needs: Write, About: "webhook=webhookId",
	},
	"project.webhook-token-rotated.v1": {
		Text: "{by} replaced the address of the webhook {webhookId|webhook}", Needs: Write, About: "webhook=webhookId",
		Hidden: "tokenHash tokenId",
	},
	"project.webhook-deleted.v1": {
		Text: "{by} deleted the webhook {webhookId|webhook}", Needs: Write, About: "webhook=webhookId",
		Setting: "webhook projectId webhookId", Values: webhookValues,
	},
}

const webhookValues = "settings.name settings.contentPath settings.occurredAtPath settings.idPath " +
	"settings.audience settings.filters|filters"

// directoryEntries are the kinds of identities and audiences.
var directoryEntries = map[string]Entry{
	"audience.put.v1": {
		Text: "{by} wrote the audience {slug}", About: "audience=audienceId",
		Setting: "audience projectId audienceId", Named: "slug",
		Values: "name kind rule|rule members|members",
	},
	"audience.removed.v1": {
		Text: "{by} removed the audience {audienceId|audience}", About: "audience=audienceId",
		Setting: "audience projectId audienceId", Values: "name kind rule|rule members|members",
	},
	"audience.recomputed.v1": {Elsewhere: "counts members again and changes nothing"},
	"identity.appeared.v1": {
		Text: "The identity {identity} appeared ({origin}), by {by}", IsOfThing: true, Texts: true,
		About: "identity=@", Setting: "traits @", Values: "record.traits|traits",
	},
	"identity.traits-replaced.v1": {
		Text: "{by} replaced the traits of {record.identity}", Texts: true,
		About: "identity=@", Setting: "traits @", Values: "record.traits|traits",
	},
	"identity.traits-merged.v1": {
		Text: "{by} changed traits of {record.identity}", Texts: true,
		About: "identity=@", Setting: "traits @", Values: "record.traits|traits",
	},
	"identity.bulk-row-applied.v1": {
		Text: "{by} wrote the traits of {record.identity} with many others", IsOfThing: true, Texts: true,
		About: "identity=@", Setting: "traits @", Values: "record.traits|traits",
	},
	"identity.removed.v1": {
		Text: "{by} removed an identity", About: "identity=@",
	},
	"identity.cleared.v1": {Elsewhere: "the last step of the removal of an identity, which has a row"},
	"bulk.accepted.v1": {
		Text: "{by} wrote the traits of {targets|count} identities at once", Needs: Read,
	},
	"bulk.fanned-out.v1": {Elsewhere: "the end of a write of many identities, which has a row"},
}

// textEntries are the kinds of data points, of their sends, and of deletion and erasure.
var textEntries = map[string]Entry{
	"datapoint.revision-accepted.v1": {
		Cases: []Case{{"effect.revision", "1", "{by} wrote {@|datapoint}"}},
		Text:  "{by} corrected {@|datapoint} (revision {effect.revision|number})", About: "datapoint=@", IsOfPeople: true,
		Hidden: "content metadata author sourceId label",
	},
	"datapoint.moved.v1": {
		Text: "{by} moved {@|datapoint} to another audience", About: "datapoint=@", IsOfPeople: true,
		Hidden: "sourceId label",
	},
	"datapoint.resent.v1": {Elsewhere: "changes nothing; stays in Requests"},
	"datapoint.deleted.v1": {
		Text: "{by} deleted a text", About: "datapoint=@",
	},
	"ingestion.claimed.v1": {Elsewhere: "a key that makes a send happen once; stays in Requests"},
	"ingestion.accepted.v1": {
		Text: "{by} sent {items|count} texts at once", About: "send=@", IsOfPeople: true,
		Hidden: "fingerprint",
	},
	"ingestion.fanned-out.v1": {Elsewhere: "the outcome of a send; stays in Data points"},
	"ingestion.indexed.v1":    {Elsewhere: "the end of a send; stays in Data points"},
	"ingestion.failed.v1":     {Elsewhere: "the end of a send; stays in Failed sends"},
	"ingestion.retried.v1": {
		Text: "{by} retried a failed send", About: "send=@", IsOfPeople: true,
	},
	"deletion.accepted.v1": {
		Text: "{by} deleted {targets|count} texts at once", About: "deletion=@",
	},
	"deletion.fanned-out.v1": {Elsewhere: "the outcome of a deletion, which has a row"},
	"deletion.facts-kept.v1": {Elsewhere: "what outlives a deleted text: the row of its deletion is made of it"},
	"deletion.cleaned.v1":    {Elsewhere: "the last step of a deletion, which has a row"},
	"erasure.requested.v1": {
		Text: "{by} began the erasure of a person", Needs: Manage, About: "erasure=@ identity=recordId",
	},
	"erasure.data-points-deleted.v1": {Elsewhere: "a step of an erasure; its receipt has it"},
	"erasure.person-forgotten.v1":    {Elsewhere: "a step of an erasure; its receipt has it"},
	"erasure.purged.v1":              {Elsewhere: "a step of an erasure; its receipt has it"},
	"erasure.ended.v1": {
		Text: "The erasure of a person ended", Needs: Manage, About: "erasure=@",
	},
}

// internalEntries are the kinds that no person causes, or that concern the whole deployment.
var internalEntries = map[string]Entry{
	"registry.log-opened.v1":   {Elsewhere: "the beginning of the log; concerns the deployment"},
	"registry.hash-key-set.v1": {Elsewhere: "the beginning of the log; concerns the deployment"},
	"registry.event-set-aside.v1": {
		Elsewhere: "concerns the deployment; stays in Health and in annals set-aside",
	},
	"memory.derivation-started.v1": {Elsewhere: "derivations stay in Data points"},
	"memory.derived.v1":            {Elsewhere: "derivations stay in Data points"},
	"memory.failed.v1":             {Elsewhere: "derivations stay in Failed sends"},
	"memory.embedded.v1":           {Elsewhere: "derivations stay in Data points"},
	"pipeline.searchable.v1":       {Elsewhere: "the end of sends; stays in Data points"},
	"usage.charged.v1":             {Elsewhere: "recalls stay in Requests and Usage"},
	"reads.rooted.v1":              {Elsewhere: "who was shown what; stays in the records of reads"},
	"reads.recorded.v1":            {Elsewhere: "who was shown what; stays in the records of reads"},
	"audit.records-kept.v1":        {Elsewhere: "leaf records of what left the log; the removal has a row"},
	"audit.key-added.v1":           {Elsewhere: "a key of checkpoints; stays in the audit log"},
	"audit.checkpoint-signed.v1":   {Elsewhere: "a checkpoint; stays in the audit log"},
	"audit.checkpoint-cosigned.v1": {Elsewhere: "what witnesses signed; stays in the audit log"},
	"blob.opened.v1":               {Elsewhere: "a part of the event that refers to it"},
}

// visitEntries are the kinds of what people did without a change, and of what operators read.
var visitEntries = map[string]Entry{
	"visit.signed-in.v1": {
		Cases: []Case{
			{"way", "code", "{by} signed in, with a code of the second factor, from {network}"},
			{"way", "provider", "{by} signed in at the provider, from {network}"},
			{"way", "link", "{by} signed in with a link, from {network}"},
		},
		Text: "{by} signed in with the password, from {network}", Needs: Manage, About: "member=personId",
	},
	"visit.sign-in-refused.v1": {
		Text:  "A sign-in as {personId|person} was refused, {attempts|number} times until {lastAt|time}, from {network}",
		Needs: Manage, About: "member=personId",
	},
	"visit.link-made.v1": {
		Cases: []Case{
			{"purpose", "recovery", "A link for a forgotten password was mailed to {personId|person}, {times|number} times"},
			{"purpose", "verification", "{by} had a link mailed that confirms an address"},
		},
		Text: "{by} made a link for {personId|person} to sign in ({purpose})", Needs: Manage, About: "member=personId",
	},
	"visit.link-used.v1": {
		Text: "{by} used a link ({purpose}), from {network}", Needs: Manage, About: "member=personId",
	},
	"visit.password-changed.v1": {
		Text: "{by} changed the password, from {network}", Needs: Manage, About: "member=personId",
	},
	"visit.second-factor-changed.v1": {
		Cases: []Case{
			{"change", "removed", "{by} removed the second factor, from {network}"},
			{"change", "codes", "{by} made new recovery codes, from {network}"},
		},
		Text: "{by} set up a second factor, from {network}", Needs: Manage, About: "member=personId",
	},
	"visit.sessions-ended.v1": {
		Cases: []Case{
			{"ended", "one", "{by} ended another session, from {network}"},
			{"ended", "everywhere", "{by} signed out everywhere, from {network}"},
		},
		Text: "{by} signed out, from {network}", Needs: Manage, About: "member=personId",
	},
	"visit.exported.v1": {
		Cases: []Case{{"projectId", "", "{by} exported {what} ({format}), from {network}"}},
		Text:  "{by} exported {what} ({format}) of {projectId|project}, from {network}", Needs: Manage,
		About: "member=personId",
	},
	"visit.read-opened.v1": {
		Text: "{by} opened the texts that request {readId} of {projectId|project} was shown, from {network}", Needs: Manage,
		About: "member=personId",
	},
	"visit.operator-read.v1": {
		Text: "{by} read what {command} shows", Needs: Manage,
	},
}
