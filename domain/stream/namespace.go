package stream

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"errors"

	"github.com/google/uuid"
)

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
