package secret

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/google/uuid"
)

// SealKeyBytes is the length of a seal key in bytes, as AES-256 needs it.
const SealKeyBytes = 32

// ErrSealKeyUnknown reports a value that is sealed with a key that the sealer does not have.
var ErrSealKeyUnknown = errors.New("the value is sealed with a key that is not set")

// Sealed is a clear value that only its seal key opens again. Key is the name of that key and
// reveals nothing about it.
type Sealed struct {
	Key  string
	Data []byte // nonce and ciphertext
}

// Sealer seals clear values with the first of its keys and opens those that any of them sealed.
type Sealer struct {
	first string
	keys  map[string]cipher.AEAD
}

// NewSealer makes a sealer of one or more keys of SealKeyBytes bytes.
func NewSealer(keys ...[]byte) (*Sealer, error) {
	if len(keys) == 0 {
		return nil, errors.New("a sealer needs a key")
	}
	s := &Sealer{first: Name(keys[0]), keys: make(map[string]cipher.AEAD, len(keys))}
	for _, key := range keys {
		if len(key) != SealKeyBytes {
			return nil, fmt.Errorf("a seal key has %d bytes, not %d", SealKeyBytes, len(key))
		}
		block, err := aes.NewCipher(key)
		if err != nil {
			return nil, fmt.Errorf("seal key: %w", err)
		}
		if s.keys[Name(key)], err = cipher.NewGCM(block); err != nil {
			return nil, fmt.Errorf("seal key: %w", err)
		}
	}
	return s, nil
}

// Name returns the name of a seal key: the beginning of its hash. The hash does not reveal
// the key, which has full entropy.
func Name(key []byte) string {
	sum := sha256.Sum256(append([]byte("annals seal key "), key...))
	return hex.EncodeToString(sum[:8])
}

// First is the name of the key that seals.
func (s *Sealer) First() string { return s.first }

// Seal seals the clear value of an API key. It opens for the same key id only, so that no row can
// be put in another's place.
func (s *Sealer) Seal(keyID uuid.UUID, clear string) (Sealed, error) {
	aead := s.keys[s.first]
	nonce := make([]byte, aead.NonceSize(), aead.NonceSize()+len(clear)+aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return Sealed{}, fmt.Errorf("seal a key: %w", err)
	}
	return Sealed{Key: s.first, Data: aead.Seal(nonce, nonce, []byte(clear), keyID[:])}, nil
}

// Open returns the clear value. It returns ErrSealKeyUnknown if the sealer does not have the seal
// key, and another error if the value is damaged or belongs to another key.
func (s *Sealer) Open(keyID uuid.UUID, sealed Sealed) (string, error) {
	aead, ok := s.keys[sealed.Key]
	if !ok {
		return "", ErrSealKeyUnknown
	}
	if len(sealed.Data) < aead.NonceSize() {
		return "", errors.New("the sealed value of the key is damaged")
	}
	clear, err := aead.Open(nil, sealed.Data[:aead.NonceSize()], sealed.Data[aead.NonceSize():], keyID[:])
	if err != nil {
		return "", errors.New("the sealed value of the key is damaged, or another key's")
	}
	return string(clear), nil
}
