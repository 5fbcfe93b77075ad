package history

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
