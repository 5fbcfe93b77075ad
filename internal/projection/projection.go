// Package projection names the projections, for those that wait for one and may not import it.
package projection

// The name of a projection is its schema, its topic, and what callers wait for.
const (
	Access      = "access"
	Audit       = "audit"
	DataPoints  = "datapoints"
	Directory   = "directory"
	Embeddings  = "embeddings"
	History     = "history"
	Memories    = "memories"
	Reads       = "reads"
	RecallIndex = "recallindex"
	Trace       = "trace"
	Usage       = "usage"
)

// Recount is the follow-up of Directory that counts the members of a rule.
const Recount = "recount"

// Names are the names of all projections.
func Names() []string {
	return []string{Access, Audit, DataPoints, Directory, Embeddings, History, Memories, Reads, RecallIndex, Trace, Usage}
}
