package history

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
