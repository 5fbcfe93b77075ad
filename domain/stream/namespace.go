package stream

import (
	"crypto/hmac"
	"crypto/sha256"
	"errors"

	"github.com/google/uuid"
)

// Namespace is the namespace of a project as the log stores it. The namespace that ids are made in follows from it
// (Namespaces.Of); where Keyed, only together with the hash key, which is in no stream. Otherwise ID is the namespace itself, as
// in projects of earlier versions, and a guess of a source id, an identity or an idempotency key can be confirmed from the log.
type Namespace struct {
	ID    uuid.UUID `json:"id"`
	Keyed bool      `json:"keyed"`
}

// NewNamespace is the namespace of a new project.
func NewNamespace() Namespace { return Namespace{ID: uuid.New(), Keyed: true} }

// ErrNoHashKey is returned for a keyed namespace where no hash key is known.
var ErrNoHashKey = errors.New("the namespace of the project needs the hash key")

// Namespaces derives the namespaces that ids are made in. The zero value has no hash key and derives those that are not keyed.
type Namespaces struct{ hashKey []byte }

// NewNamespaces takes the hash key of the deployment.
func NewNamespaces(hashKey []byte) Namespaces { return Namespaces{hashKey: hashKey} }

// Of is the namespace for DataPointID, IdentityID and IngestionID. It is a secret where it is keyed: it must not be stored.
func (n Namespaces) Of(stored Namespace) (uuid.UUID, error) {
	if !stored.Keyed {
		return stored.ID, nil
	}
	if len(n.hashKey) == 0 {
		return uuid.Nil, ErrNoHashKey
	}
	mac := hmac.New(sha256.New, n.hashKey)
	mac.Write([]byte("annals project namespace "))
	mac.Write(stored.ID[:])
	return uuid.UUID(mac.Sum(nil)[:16]), nil
}
