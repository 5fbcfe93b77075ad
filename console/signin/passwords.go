package signin

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/trustelem/zxcvbn"
	"golang.org/x/crypto/argon2"
	"golang.org/x/text/unicode/norm"

	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/statement"
)

// Attempt is a sign-in with a password. Former is the token that the browser had before, "" for none.
type Attempt struct {
	Email, Password string
	Client          Client
	Former          string
}

// SignIn begins a session with a password. Its errors are ErrRefused, ErrUninvited and *ThrottledError. A refusal takes
// as long for an address that nobody has.
func (s *Service) SignIn(ctx context.Context, a Attempt) (SignedIn, error) {
	began := time.Now()
	in, looked, err := s.signIn(ctx, a)
	_, throttled := errors.AsType[*ThrottledError](err)
	if throttled {
		err = s.refused(ctx, a.Client, uuid.Nil, err)
	}
	if rest := s.FailureTime - time.Since(began); (errors.Is(err, ErrRefused) || looked && throttled) && rest > 0 {
		err = errors.Join(err, s.pause(ctx, rest))
	}
	return in, err
}

// signIn lets a known browser of the person try, and everybody else as a stranger. looked reports whether the person
// was looked up before the throttle was asked as of a stranger, which must not show in the time of a refusal.
func (s *Service) signIn(ctx context.Context, a Attempt) (in SignedIn, looked bool, err error) {
	marks, counted, err := s.countMarks(ctx, a.Client)
	if err != nil {
		return SignedIn{}, false, err
	}
	own := uuid.Nil
	if looked = len(marks) > 0; looked {
		if own, err = s.find(ctx, a); err != nil {
			return SignedIn{}, looked, err
		}
	}
	if isOf(marks, own) {
		in, err = s.checkPassword(ctx, s.ofKnown(own), a, own)
	} else {
		in, err = s.signInStranger(ctx, a)
	}
	if err == nil {
		err = s.forgive(ctx, counted...)
	}
	return in, looked, err
}

func (s *Service) signInStranger(ctx context.Context, a Attempt) (in SignedIn, err error) {
	email, network := person.NormalEmail(a.Email), networkOf(a.Client.Address)
	byNetwork, byAccount := s.keyed(ofNetwork, network), s.keyed("account", email)
	byBoth := s.keyed("pair", network+"\x00"+email)
	if err := s.limit(ctx, byNetwork, s.AddressFailures); err != nil {
		return SignedIn{}, err
	}
	counted, err := s.count(ctx, byBoth, byAccount)
	if err != nil {
		return SignedIn{}, err
	}
	if err := s.refuse(counted[0], s.PairFailures); err != nil {
		return SignedIn{}, err
	}
	check := func() error {
		id, err := s.find(ctx, a)
		if err == nil {
			in, err = s.checkPassword(ctx, s.ofStranger(a.Client), a, id)
		}
		return err
	}
	if counted[1].Failures > s.AccountFailures {
		err = s.slowly(ctx, string(byAccount), check)
	} else {
		err = check()
	}
	if err != nil {
		return SignedIn{}, err
	}
	return in, s.forgive(ctx, byNetwork, byAccount, byBoth)
}

// find returns the person of an attempt, zero for nobody.
func (s *Service) find(ctx context.Context, a Attempt) (uuid.UUID, error) {
	if len(a.Password) > 4*MaxPassword || !person.ValidEmail(a.Email) {
		return uuid.Nil, nil
	}
	id, found, err := s.People.FindPerson(ctx, a.Email)
	if err != nil || !found {
		return uuid.Nil, err
	}
	return id, nil
}

// checkPassword begins a session if the password is that of a person, zero for nobody.
func (s *Service) checkPassword(ctx context.Context, h hasher, a Attempt, id uuid.UUID) (in SignedIn, err error) {
	stored := password{}
	if in.Person = id; id != uuid.Nil {
		stored, err = s.passwordOf(ctx, id)
	}
	if err != nil {
		return SignedIn{}, err
	}
	matches, err := h.matches(ctx, a.Password[:min(len(a.Password), 4*MaxPassword)], stored.Hash)
	if err != nil {
		return SignedIn{}, err
	}
	if !matches {
		return SignedIn{}, s.refused(ctx, a.Client, id, ErrRefused)
	}
	if may, err := s.MaySignIn(ctx, in.Person); err != nil || !may {
		return SignedIn{}, s.refused(ctx, a.Client, id, errors.Join(err, ErrUninvited))
	}
	in.Pending, in.way = stored.SecondFactor, visit.Password
	return s.begin(ctx, s.DB, a.Client, a.Former, in, false)
}

// password is the stored hash of one, "" for none, and whether a second factor goes with it.
type password struct {
	Hash         string
	SecondFactor bool
}

func (s *Service) passwordOf(ctx context.Context, id uuid.UUID) (password, error) {
	stored, _, err := statement.One(ctx, s.DB, pgx.RowToStructByPos[password],
		`select coalesce(password, ''), totp is not null from ops.signin_people where person_id = $1`, id)
	return stored, err
}

// ChangePassword sets the password of the person of a session who knows the current one, or has none and gave a fresh
// proof. All other sessions of the person end. It hashes in the slots of the organization that the session shows. Its
// errors are ErrRefused, ErrProof, ErrPassword, ErrGuessable and *ThrottledError.
func (s *Service) ChangePassword(
	ctx context.Context, in Session, organization uuid.UUID, current, next string,
) error {
	if err := checkNew(next); err != nil {
		return err
	}
	stored, err := s.passwordOf(ctx, in.Person)
	if err == nil && stored.Hash == "" && !s.Fresh(in) {
		err = ErrProof
	}
	if err != nil {
		return err
	}
	return s.guardedPassword(ctx, in.Person, organization, func(h hasher) error {
		if stored.Hash != "" {
			if matches, err := h.matches(ctx, current, stored.Hash); err != nil || !matches {
				return cmp.Or(err, ErrRefused)
			}
		}
		hash, err := h.hash(ctx, next)
		if err != nil {
			return err
		}
		return pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error {
			changed, err := statement.Exec(ctx, tx, `insert into ops.signin_people as p (person_id, password) values ($1, $2)
				on conflict (person_id) do update set password = excluded.password, generated = false
				where coalesce(p.password, '') = $3`, in.Person, hash, stored.Hash)
			if err == nil && changed == 0 {
				err = ErrRefused // it was changed meanwhile
			}
			if err == nil {
				err = endSessions(ctx, tx, in.Person, in.ID)
			}
			return err
		})
	})
}

// GeneratePassword sets the password of the owner of a first start, unless the person has signed in or could. set
// reports whether it did. The password ends when the person chooses one. The address counts as proved: who reads the
// password has the machine.
func (s *Service) GeneratePassword(
	ctx context.Context, id uuid.UUID, email, password string,
) (set bool, err error) {
	hash, err := s.ofKnown(uuid.Nil).hash(ctx, password)
	if err != nil {
		return false, err
	}
	done, err := statement.Exec(ctx, s.DB, `with made as (insert into ops.signin_people (person_id, password, generated)
			values ($1, $2, true) on conflict (person_id) do nothing returning person_id)
		insert into ops.signin_proofs (person_id, address, proved_at) select person_id, $3, $4 from made`, id, hash,
		s.addressName(email), s.now())
	return done > 0, err
}

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
