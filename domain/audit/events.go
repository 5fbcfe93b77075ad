package audit

import "github.com/google/uuid"

// RecordsKept keeps the records of events that are about to leave the log: those of a stream from the
// stream revision From on. It is in a stream of its own, which is never erased (stream.RecordsName).
type RecordsKept struct {
	// OrganizationID is the one that the leaves name.
	OrganizationID uuid.UUID `json:"organizationId"`
	// ProjectID is zero for a stream that belongs to no project.
	ProjectID uuid.UUID `json:"projectId,omitzero"`
	Stream    string    `json:"stream"`
	From      int64     `json:"from"`
	Records   KeptList  `json:"records"`
}

func (RecordsKept) EventType() string { return "audit.records-kept.v1" }

// To is the stream revision up to which, exclusive, the event keeps records.
func (e RecordsKept) To() int64 { return e.From + int64(len(e.Records)) }
