package audit

import (
	"fmt"

	"github.com/google/uuid"
)

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

// KeyAdded adds a key that signs the checkpoints of a tree. It is in the stream audit-<organization>, of which the
// zero id is the deployment.
type KeyAdded struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	// Origin is the first line of the checkpoints that the key signs (Origin).
	Origin string `json:"origin"`
	// Verifier is the public key, as a signed note has it.
	Verifier string `json:"verifier"`
	// Former is the last checkpoint of the origin before, "" unless the key begins an origin after another.
	Former string `json:"former,omitempty"`
}

func (KeyAdded) EventType() string { return "audit.key-added.v1" }

// CheckpointSigned has a checkpoint of the tree of an organization.
type CheckpointSigned struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	// Size is how many leaves the checkpoint covers.
	Size int64 `json:"size"`
	// Note is the checkpoint, a signed note.
	Note string `json:"note"`
}

func (CheckpointSigned) EventType() string { return "audit.checkpoint-signed.v1" }

// CheckpointCosigned has what witnesses signed of a checkpoint. A newer one may have been signed meanwhile.
type CheckpointCosigned struct {
	OrganizationID uuid.UUID `json:"organizationId"`
	Size           int64     `json:"size"`
	// Note is the checkpoint, and Signatures the lines that the witnesses add to it.
	Note       string `json:"note"`
	Signatures string `json:"signatures"`
}

func (CheckpointCosigned) EventType() string { return "audit.checkpoint-cosigned.v1" }

// Origin names the tree of an organization of a log, zero for that of the deployment. A restored log begins the next
// number, so that no two checkpoints of one origin and size differ.
func Origin(log, organization uuid.UUID, number int) string {
	return fmt.Sprintf("annals/%s/%s/%d", log, organization, number)
}
