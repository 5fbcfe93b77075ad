package stream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/google/uuid"
)

// Namespace is the namespace of a project as the log stores it. If it is Keyed, the namespace of
// ids derives from it and the hash key (Namespaces.Of), which is not in any stream. Otherwise, as
// in projects of earlier versions, ID is the namespace itself, and a guess of a source id, an
// identity or an idempotency key can be confirmed from the log.
type Namespace struct {
	ID    uuid.UUID `json:"id"`
	Keyed bool      `json:"keyed"`
}

// NewNamespace is the namespace of a new project.
func NewNamespace() Namespace { return Namespace{ID: uuid.New(), Keyed: true} }

// ErrNoHashKey is returned for a keyed namespace without a hash key.
var ErrNoHashKey = errors.New("the namespace of a project, and an address, need the hash key")

// Namespaces derives the namespaces of ids. The zero value has no hash key and derives those that
// are not keyed.
type Namespaces struct{ hashKey []byte }

// NewNamespaces takes the hash key of the deployment.
func NewNamespaces(hashKey []byte) Namespaces { return Namespaces{hashKey: hashKey} }

// Of returns the namespace for DataPointID, IdentityID and IngestionID. It is a secret if it is
// keyed: do not store it.
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
