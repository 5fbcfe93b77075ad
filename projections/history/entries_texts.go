package history

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
