// Package stream names every stream and derives the ids in these names.
//
// A stream name is its category, a dash and an id. Ids of customers' names (source ids, identities,
// idempotency keys) are UUIDv5 in the namespace of the project, so that no stream name contains
// customer text.
package stream

import (
	"strings"

	"github.com/google/uuid"
)

// The categories. Those with customer text are erasable: DataPoint, Memory, Blob, Identity, Person and Offer.
const (
	Registry     = "registry"
	Organization = "organization"
	Person       = "person"
	Address      = "address" // of e-mail addresses: Namespaces.AddressName
	Offer        = "offer"   // of a membership to an address
	Project      = "project"
	Identity     = "identity"
	Bulk         = "bulk"
	Audiences    = "audiences"
	Usage        = "usage"
	DataPoint    = "datapoint"
	Memory       = "memory"
	Ingestion    = "ingestion"
	Deletion     = "deletion"
	Erasure      = "erasure" // of a person
	Blob         = "blob"
	Records      = "records"
	Pipeline     = "pipeline" // one stream for the whole log
)

// Name returns the stream of an id in a category.
func Name(family string, id uuid.UUID) string { return family + "-" + id.String() }

// UsageName returns the stream of what a project was charged in a UTC calendar month ("2006-01")
// for calls other than sends.
func UsageName(project uuid.UUID, month string) string { return Name(Usage, project) + "-" + month }

// BlobName returns the stream of a blob: owner is what its erasure belongs to, command is the
// command that wrote it.
func BlobName(owner, command uuid.UUID) string {
	return Blob + "-" + owner.String() + "-" + command.String()
}

// RecordsName returns the stream that keeps the records of the events of a stream of an id.
func RecordsName(name string) string { return Name(Records, Owner(name)) + "-" + Category(name) }

// Category is the part of a stream name before the first dash.
func Category(name string) string {
	family, _, _ := strings.Cut(name, "-")
	return family
}

// Owner returns the id in a stream name: of a blob, its owner. It is uuid.Nil for the registry and
// for foreign streams.
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

// IngestionID returns the id of the send of an idempotency key within a project.
func IngestionID(namespace uuid.UUID, idempotencyKey string) uuid.UUID {
	return uuid.NewSHA1(namespace, []byte("ingestion:"+idempotencyKey))
}

// SendDeletionID is the id of the one deletion of a batch whose fan-out is pending. It follows from
// the batch, so that every fan-out of the batch finds the deletion.
func SendDeletionID(send uuid.UUID) uuid.UUID { return uuid.NewSHA1(send, []byte("deletion")) }
