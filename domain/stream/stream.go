// Package stream names every stream and derives the ids that streams are named by.
//
// A stream name is its family, a dash and an id. Ids of what customers name (sources, identities, idempotency keys)
// are UUIDv5 within the namespace of the project, so that no customer text stands in a stream name.
package stream

import (
	"strings"

	"github.com/google/uuid"
)

// The families. Only those with customer text can be erased: DataPoint, Memory, Blob and Identity.
const (
	Registry     = "registry"
	Organization = "organization"
	Project      = "project"
	Identity     = "identity"
	Bulk         = "bulk"
	Audiences    = "audiences"
	Usage        = "usage"
	DataPoint    = "datapoint"
	Memory       = "memory"
	Ingestion    = "ingestion"
	Deletion     = "deletion"
	Blob         = "blob"
	Pipeline     = "pipeline" // one stream for the whole log
)

// Name is the stream of one id within a family.
func Name(family string, id uuid.UUID) string { return family + "-" + id.String() }

// UsageName is the stream of what a project was charged in a UTC calendar month ("2006-01") beside its sends.
func UsageName(project uuid.UUID, month string) string { return Name(Usage, project) + "-" + month }

// BlobName is the stream of a blob: the owner whose erasure takes it along, and the command that wrote it.
func BlobName(owner, command uuid.UUID) string {
	return Blob + "-" + owner.String() + "-" + command.String()
}

// Family is the part of a stream name before the first dash.
func Family(name string) string {
	family, _, _ := strings.Cut(name, "-")
	return family
}

// Owner is the id within a stream name: for a blob its owner. It is uuid.Nil for the registry and for foreign streams.
func Owner(name string) uuid.UUID {
	_, rest, ok := strings.Cut(name, "-")
	if !ok || len(rest) < 36 {
		return uuid.Nil
	}
	id, err := uuid.Parse(rest[:36])
	if err != nil {
		return uuid.Nil
	}
	return id
}

// DataPointID is the id of the data point that a source id names within a project.
func DataPointID(namespace uuid.UUID, sourceID string) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte("datapoint:"+sourceID))
}

// IdentityID is the id of the directory record that an identity names within a project.
func IdentityID(namespace uuid.UUID, identity string) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte("identity:"+identity))
}

// IngestionID is the id of the send that an idempotency key stands for within a project.
func IngestionID(namespace uuid.UUID, idempotencyKey string) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte("ingestion:"+idempotencyKey))
}
