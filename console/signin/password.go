package signin

import (
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/trustelem/zxcvbn"
	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/annals-project/annals/internal/allowance"
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

// hashWaiters is how many hashes wait for a slot in each pool, a quarter of them for one owner.
const hashWaiters = 64

// checkNew returns what is wrong with a new password: ErrPassword, or ErrGuessable for one that is guessed early, as a
// common one, a repetition or a row of keys is.
func checkNew(password string) error {
	n := utf8.RuneCountInString(password)
	if !utf8.ValidString(password) || n < MinPassword || n > MaxPassword {
		return ErrPassword
	}
	begins := []rune(strings.ToLower(password))[:min(n, judgedPassword)]
	if repeats(begins) || isASCII(password) && zxcvbn.PasswordStrength(string(begins), serviceWords).Guesses < minGuesses {
		return ErrGuessable
	}
	return nil
}

// isASCII reports a text that zxcvbn can measure: it takes other letters for bytes, and has no words of them.
func isASCII(text string) bool {
	return !strings.ContainsFunc(text, func(c rune) bool { return c >= utf8.RuneSelf })
}

const (
	// minGuesses is how many guesses a new password withstands, by the measure of zxcvbn, which looks at judgedPassword
	// characters of it: its time grows with the square of the length.
	minGuesses     = 1e8
	judgedPassword = 40
)

// repeats reports a text that is a part of it at least three times, also in letters that zxcvbn does not know.
func repeats(text []rune) bool {
	for length := 1; length <= len(text)/3; length++ {
		if slices.Equal(text[length:], text[:len(text)-length]) {
			return true
		}
	}
	return false
}

// serviceWords are guessed early here.
var serviceWords = []string{"annals", "memory", "console"}

// hashSlots are those in which passwords are hashed, since each takes much memory. strangers is one pool for everybody
// who is not signed in, in turns between network addresses, so that an address that nobody has waits as long as
// any other. known is for sessions, by organization, and for known browsers, by person: each has one slot at a time.
type hashSlots struct{ strangers, known *allowance.Allowance }

func newHashSlots(strangers, known int, wait time.Duration) hashSlots {
	pool := func(total, share int) *allowance.Allowance {
		return allowance.New(allowance.Config{
			Total: int64(total), Share: int64(share), Wait: wait, Waiters: hashWaiters,
			Refusal: "too many passwords are being checked; retry",
		})
	}
	return hashSlots{pool(strangers, (strangers+1)/2), pool(known, 1)}
}

// hasher hashes passwords for one owner. Only the throttle hands one out, once it let the attempt through: what it
// refuses is never hashed.
type hasher struct {
	slots  *allowance.Allowance
	owner  uuid.UUID
	memory uint32 // KiB, of new hashes
}

// ofStranger hashes for a client that is not signed in.
func (s *Service) ofStranger(c Client) hasher {
	return hasher{s.slots.strangers, uuid.UUID(s.keyed("network", networkOf(c.Address))[:16]), s.HashMemory}
}

// ofKnown hashes for an organization, or for the person of a known browser.
func (s *Service) ofKnown(owner uuid.UUID) hasher { return hasher{s.slots.known, owner, s.HashMemory} }

// argon returns the hash of a password once the owner has a slot.
func (h hasher) argon(
	ctx context.Context, password string, salt []byte, memory, passes uint32, threads uint8,
) ([]byte, error) {
	slot := h.slots.Open(allowance.Owner{Organization: h.owner})
	if err := slot.Reserve(ctx, 1); err != nil {
		return nil, err
	}
	defer slot.Release()
	// One keyboard composes a letter that another one writes as two characters.
	return argon2.IDKey([]byte(norm.NFKC.String(password)), salt, passes, memory, threads, hashBytes), nil
}

// hash returns what is stored of a password: its hash with salt and cost, in the usual notation.
func (h hasher) hash(ctx context.Context, password string) (string, error) {
	if err := checkNew(password); err != nil {
		return "", err
	}
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails
	sum, err := h.argon(ctx, password, salt, h.memory, hashPasses, hashThreads)
	encode := base64.RawStdEncoding.EncodeToString
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=%d$%s$%s",
		argon2.Version, h.memory, hashPasses, hashThreads, encode(salt), encode(sum)), err
}

// matches compares a password with what is stored, "" for nothing: that takes as long.
func (h hasher) matches(ctx context.Context, password, stored string) (bool, error) {
	var version int
	var memory, passes uint32
	var threads uint8
	parts := strings.Split(stored, "$")
	if stored == "" {
		_, err := h.argon(ctx, password, make([]byte, saltBytes), h.memory, hashPasses, hashThreads)
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
	sum, err := h.argon(ctx, password, salt, memory, passes, threads)
	return err == nil && subtle.ConstantTimeCompare(sum, want) == 1, err
}
