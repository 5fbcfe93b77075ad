// Package stream names every stream and derives the ids in these names.
//
// A stream name is its category, a dash and an id. Ids of customers' names (source ids, identities,
// idempotency keys) are UUIDv5 in the namespace of the project, so that no stream name contains
// customer text.
package stream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/event"
)

// The categories. Those with customer text are erasable: DataPoint, Memory, Blob, Identity, Person, Offer and Visits.
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
	Audit        = "audit"    // checkpoints of the tree of an organization, and the keys that sign them
	Reads        = "reads"    // who was shown which texts of a project
	Visits       = "visits"   // of a person to an organization, in a month
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

// RecordsName returns the stream that keeps the records of the events of a stream of an id, of a stream of visits, and
// of one of read records.
func RecordsName(name string) string {
	records := Name(Records, Owner(name)) + "-" + Category(name)
	switch Category(name) {
	case Reads:
		records += "-" + ReadsDay(name)
	case Visits:
		if _, month := Visitor(name); month != "" {
			records += name[len(Visits)+1+uuidLength:]
		}
	}
	return records
}

// ReadsName returns the stream of the read records of a project that were appended on a UTC day ("2006-01-02").
func ReadsName(project uuid.UUID, day string) string { return Name(Reads, project) + "-" + day }

// ReadsDay returns the day in the name of a stream of read records.
func ReadsDay(name string) string { return name[max(len(name)-len(time.DateOnly), 0):] }

// ofOperator begins what follows the organization where the visitor is an operator, whose person is not known.
const ofOperator = "operator" + "-"

// VisitsName returns the stream of what a person did in a UTC calendar month ("2006-01") with an organization; of
// uuid.Nil, what operators read.
func VisitsName(organization, person uuid.UUID, month string) string {
	who := ofOperator
	if person != uuid.Nil {
		who = person.String() + "-"
	}
	return Name(Visits, organization) + "-" + who + month
}

// Visitor returns the person and the month in the name of a stream of visits; uuid.Nil is an operator.
func Visitor(name string) (person uuid.UUID, month string) {
	_, id, _ := strings.Cut(name, "-")
	_, who, _ := cutID(id)
	if month, is := strings.CutPrefix(who, ofOperator); is {
		return uuid.Nil, month
	}
	who, month, _ = cutID(who)
	person, err := uuid.Parse(who)
	if err != nil {
		return uuid.Nil, ""
	}
	return person, month
}

// Category is the part of a stream name before the first dash. It is "" for a stream that begins like one of ours and
// is not named as this package names them: another application wrote it, and it is passed over.
func Category(name string) string {
	family, id, _ := strings.Cut(name, "-")
	if !isFormed(family, id) {
		return ""
	}
	return family
}

// IsOurs reports whether a whole name is one that the service forms.
func IsOurs(name string) bool {
	switch family := Category(name); family {
	case Registry, Pipeline, Address, Usage, Blob, Records, Reads, Visits:
		return true
	default:
		return isOfID(family)
	}
}

// uuidLength is the length of the text of a UUID.
const uuidLength = 36

// isFormed reports whether what follows the category in a stream name, and a dash, has the form of our names. What is
// no category of ours may have any form.
func isFormed(family, id string) bool {
	switch family {
	case Registry, Pipeline:
		return id == ""
	case Address:
		return len(id) == 2*sha256.Size && isHex(id)
	case Usage:
		project, month, ok := cutID(id)
		return ok && isUUID(project) && isMonth(month)
	case Blob:
		owner, command, ok := cutID(id)
		return ok && isUUID(owner) && isUUID(command)
	case Visits:
		organization, visitor, ok := cutID(id)
		return ok && isUUID(organization) && isVisitor(visitor)
	case Records:
		owner, of, ok := cutID(id)
		visitor, isVisits := strings.CutPrefix(of, Visits+"-")
		return ok && isUUID(owner) && (isOfID(of) || isReads(of) || isVisits && isVisitor(visitor))
	case Reads:
		project, day, ok := cutID(id)
		return ok && isUUID(project) && isDay(day)
	}
	return !isOfID(family) || isUUID(id)
}

// isReads reports whether what follows the owner in the name of a stream of kept records names read records of a day.
func isReads(of string) bool {
	day, is := strings.CutPrefix(of, Reads+"-")
	return is && isDay(day)
}

// isOfID reports whether the streams of a category are named by an id alone.
func isOfID(family string) bool {
	switch family {
	case Organization, Person, Offer, Project, Identity, Bulk, Audiences,
		DataPoint, Memory, Ingestion, Deletion, Erasure, Audit:
		return true
	}
	return false
}

// cutID cuts what follows a UUID and a dash.
func cutID(id string) (first, rest string, ok bool) {
	if len(id) <= uuidLength || id[uuidLength] != '-' {
		return "", "", false
	}
	return id[:uuidLength], id[uuidLength+1:], true
}

// isUUID reports whether a text is a UUID as Name writes it.
func isUUID(text string) bool {
	if len(text) != uuidLength {
		return false
	}
	for i := range len(text) {
		switch c := text[i]; i {
		case 8, 13, 18, 23:
			if c != '-' {
				return false
			}
		default:
			if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
				return false
			}
		}
	}
	return true
}

// isVisitor reports whether a text is a person, or the operator, and a month.
func isVisitor(text string) bool {
	month, is := strings.CutPrefix(text, ofOperator)
	if !is {
		var person string
		person, month, is = cutID(text)
		is = is && isUUID(person)
	}
	return is && isMonth(month)
}

func isHex(text string) bool {
	return !strings.ContainsFunc(text, func(r rune) bool { return (r < '0' || r > '9') && (r < 'a' || r > 'f') })
}

// isMonth reports whether a text is a month as UsageName writes it.
func isMonth(text string) bool {
	_, err := time.Parse("2006-01", text)
	return err == nil
}

// isDay reports whether a text is a day as ReadsName writes it.
func isDay(text string) bool {
	_, err := time.Parse(time.DateOnly, text)
	return err == nil
}

// Owner returns the id in a stream name: of a blob, its owner. It is uuid.Nil for the registry and
// for foreign streams.
func Owner(name string) uuid.UUID {
	_, rest, ok := strings.Cut(name, "-")
	if !ok || len(rest) < uuidLength {
		return uuid.Nil
	}
	id, err := uuid.Parse(rest[:uuidLength])
	if err != nil {
		return uuid.Nil
	}
	return id
}

// DataPointID is the id of the data point that a source id names within a project.
func DataPointID(namespace uuid.UUID, sourceID string) uuid.UUID {
	return event.Derived(namespace, "datapoint:", sourceID)
}

// IdentityID is the id of the directory record that an identity names within a project.
func IdentityID(namespace uuid.UUID, identity string) uuid.UUID {
	return event.Derived(namespace, "identity:", identity)
}

// PrivateAudienceID is the id of the audience that the record of an identity has for itself. It derives from when the
// record was created, so that a later record of the same name has another one.
func PrivateAudienceID(identity uuid.UUID, createdAt time.Time) uuid.UUID {
	return event.Derived(identity, "private:", strconv.FormatInt(createdAt.UnixMicro(), 10))
}

// IngestionID returns the id of the send of an idempotency key within a project.
func IngestionID(namespace uuid.UUID, idempotencyKey string) uuid.UUID {
	return event.Derived(namespace, "ingestion:", idempotencyKey)
}

// SendDeletionID is the id of the one deletion of a batch whose fan-out is pending. It follows from
// the batch, so that every fan-out of the batch finds the deletion.
func SendDeletionID(send uuid.UUID) uuid.UUID { return event.Derived(send, "deletion", "") }

// ErrNoHashKey is returned for a namespace or an address without a hash key.
var ErrNoHashKey = errors.New("the namespace of a project, and an address, need the hash key")

// Namespaces derives the namespaces of ids. The zero value has no hash key and derives none.
type Namespaces struct{ hashKey []byte }

// NewNamespaces takes the hash key of the deployment.
func NewNamespaces(hashKey []byte) Namespaces { return Namespaces{hashKey: hashKey} }

// Of returns the namespace for DataPointID, IdentityID and IngestionID of a project. stored is the
// project's random namespace in the log; the hash key is not in any stream. So nobody can confirm a
// guess of a source id, an identity or an idempotency key from the log. The result is a secret: do
// not store it.
func (n Namespaces) Of(stored uuid.UUID) (uuid.UUID, error) {
	if len(n.hashKey) == 0 {
		return uuid.Nil, ErrNoHashKey
	}
	mac := hmac.New(sha256.New, n.hashKey)
	mac.Write([]byte("annals project namespace "))
	mac.Write(stored[:])
	return uuid.UUID(mac.Sum(nil)[:16]), nil
}

// AddressName returns the stream of a normalised e-mail address. Its name is keyed, so that a guess of
// an address cannot be confirmed from the log.
func (n Namespaces) AddressName(email string) (string, error) {
	if len(n.hashKey) == 0 {
		return "", ErrNoHashKey
	}
	mac := hmac.New(sha256.New, n.hashKey)
	mac.Write([]byte("annals e-mail address "))
	mac.Write([]byte(email))
	return Address + "-" + hex.EncodeToString(mac.Sum(nil)), nil
}

// Recipient is a keyed hash of a normalised e-mail address within an organization. It does not show whether another
// organization knows the address.
func (n Namespaces) Recipient(organization uuid.UUID, email string) (string, error) {
	if len(n.hashKey) == 0 {
		return "", ErrNoHashKey
	}
	mac := hmac.New(sha256.New, n.hashKey)
	mac.Write([]byte("annals recipient "))
	mac.Write(organization[:])
	mac.Write([]byte(email))
	return hex.EncodeToString(mac.Sum(nil)), nil
}

// Question is a keyed hash of a question to a project. It does not show whether another project was asked the same.
func (n Namespaces) Question(project uuid.UUID, text string) (string, error) {
	if len(n.hashKey) == 0 {
		return "", ErrNoHashKey
	}
	mac := hmac.New(sha256.New, n.hashKey)
	mac.Write([]byte("annals question "))
	mac.Write(project[:])
	mac.Write([]byte(text))
	return hex.EncodeToString(mac.Sum(nil)), nil
}
