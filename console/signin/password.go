package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"unicode/utf8"

	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"
)

// MinPassword and MaxPassword bound a password, in characters.
const (
	MinPassword = 12
	MaxPassword = 200
)

// The cost of new hashes: 19 MiB in two passes, as OWASP recommends. Stored hashes carry their own, within the bounds
// that a damaged row cannot exceed.
const (
	hashMemory  = 19 << 10 // KiB
	hashPasses  = 2
	hashThreads = 1
	hashBytes   = 32
	saltBytes   = 16

	maxHashMemory = 256 << 10
	maxHashPasses = 16
)

func validPassword(password string) bool {
	n := utf8.RuneCountInString(password)
	return utf8.ValidString(password) && n >= MinPassword && n <= MaxPassword
}

// argon returns the hash of a password once one of the few that are made at a time may begin: each takes much memory.
func (s *Service) argon(
	ctx context.Context, password string, salt []byte, memory, passes uint32, threads uint8,
) ([]byte, error) {
	select {
	case s.hashing <- struct{}{}:
		defer func() { <-s.hashing }()
		// One keyboard composes a letter that another one writes as two characters.
		return argon2.IDKey([]byte(norm.NFKC.String(password)), salt, passes, memory, threads, hashBytes), nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// hash returns what is stored of a password: its hash with salt and cost, in the usual notation.
func (s *Service) hash(ctx context.Context, password string) (string, error) {
	if !validPassword(password) {
		return "", ErrPassword
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	sum, err := s.argon(ctx, password, salt, hashMemory, hashPasses, hashThreads)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, hashMemory, hashPasses, hashThreads, encode(salt), encode(sum)), err
}

// matches compares a password with what is stored, "" for nothing: that takes as long.
func (s *Service) matches(ctx context.Context, password, stored string) (bool, error) {
	var version int
	var memory, passes uint32
	var threads uint8
	parts := strings.Split(stored, "$")
	if stored == "" {
		_, err := s.argon(ctx, password, make([]byte, saltBytes), hashMemory, hashPasses, hashThreads)
		return false, err
	}
	if len(parts) != 6 || parts[1] != "argon2id" {
		return false, fmt.Errorf("a stored password is damaged")
	}
	_, err := fmt.Sscanf(parts[2]+" "+parts[3], "v=%d m=%d,t=%d,p=%d", &version, &memory, &passes, &threads)
	salt, noSalt := base64.RawStdEncoding.DecodeString(parts[4])
	want, noSum := base64.RawStdEncoding.DecodeString(parts[5])
	if err != nil || noSalt != nil || noSum != nil || version != argon2.Version || threads == 0 ||
		passes == 0 || passes > maxHashPasses || memory > maxHashMemory {
		return false, fmt.Errorf("a stored password is damaged")
	}
	sum, err := s.argon(ctx, password, salt, memory, passes, threads)
	return err == nil && subtle.ConstantTimeCompare(sum, want) == 1, err
}
