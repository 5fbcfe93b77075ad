package history

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
