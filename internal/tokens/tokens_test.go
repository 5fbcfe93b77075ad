package tokens

import (
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"

	"github.com/annals-project/annals/internal/pg/pgtest"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/secret"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const (
	issuer   = "https://auth.example"
	audience = "https://api.example/api/v1"
	typ      = "at+jwt"
)

// scene is a database with processes that share it. Their clock is that of the test.
type scene struct {
	*testing.T
	Config
	clock time.Time
}

func newScene(t *testing.T) *scene {
	s := &scene{T: t, clock: time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)}
	s.Config = Config{DB: pgtest.Database(t), Sealer: sealer(t, "1"), Now: func() time.Time { return s.clock }}
	return s
}

func sealer(t *testing.T, keys string) *secret.Sealer {
	t.Helper()
	var list [][]byte
	for _, k := range strings.Split(keys, "") {
		list = append(list, []byte(strings.Repeat(k, secret.SealKeyBytes)))
	}
	made, err := secret.NewSealer(list...)
	runtest.Must(t, err)
	return made
}

func (s *scene) claims() jwt.RegisteredClaims {
	return jwt.RegisteredClaims{
		Issuer: issuer, Audience: jwt.ClaimStrings{audience}, Subject: "agent", ExpiresAt: jwt.NewNumericDate(s.clock.Add(time.Minute)),
	}
}

func (s *scene) sign(k *Keys) string {
	s.Helper()
	token, err := k.Sign(s.Context(), typ, s.claims())
	runtest.Must(s, err)
	return token
}

func (s *scene) verify(k *Keys, token string) error {
	var read jwt.RegisteredClaims
	err := k.Verify(s.Context(), token, typ, issuer, audience, &read)
	if err == nil && read.Subject != "agent" {
		s.Errorf("the subject is %q", read.Subject)
	}
	return err
}

// age makes all keys older, so that they are known everywhere.
func (s *scene) age(by time.Duration) {
	s.Helper()
	_, err := s.DB.Exec(s.Context(), `update ops.signing_keys set created_at = created_at - $1::interval`, by)
	runtest.Must(s, err)
	s.clock = s.clock.Add(fresh)
}

func kid(t *testing.T, token string) string {
	t.Helper()
	parsed, _, err := jwt.NewParser().ParseUnverified(token, jwt.MapClaims{})
	runtest.Must(t, err)
	return parsed.Header["kid"].(string)
}

func TestKeys_AreSharedByProcesses(t *testing.T) {
	s := newScene(t)
	var all sync.WaitGroup
	var signed [4]string
	for i := range signed {
		all.Go(func() { signed[i] = s.sign(New(s.Config)) })
	}
	all.Wait()
	reader := New(Config{DB: s.DB, Now: s.Now})
	for _, token := range signed {
		runtest.Must(t, s.verify(reader, token))
	}
	if _, err := reader.Sign(t.Context(), typ, s.claims()); !errors.Is(err, ErrNoKey) {
		t.Errorf("a process without a seal key signs: %v", err)
	}
	set, err := reader.Set(t.Context())
	runtest.Must(t, err)
	var rows int
	runtest.Must(t, s.DB.QueryRow(t.Context(), `select count(*) from ops.signing_keys where position('PRIVATE' in encode(sealed, 'escape')) = 0`).Scan(&rows))
	if rows != active || len(set.Keys) != active || set.Keys[0].ID == set.Keys[1].ID || len(set.Keys[0].X) != 43 {
		t.Errorf("%d keys, published %+v", rows, set)
	}
}

// A key signs when every process knows it; the one before the one before it ends everywhere within the time that a
// process uses what it has read.
func TestKeys_Rotated(t *testing.T) {
	s := newScene(t)
	a, b := New(s.Config), New(s.Config)
	first := s.sign(a)
	runtest.Must(t, s.verify(b, first))
	s.age(known)
	second := s.sign(a)
	if kid(t, first) == kid(t, second) {
		t.Error("the newer key never signs")
	}
	runtest.Must(t, s.verify(b, second))
	left, err := a.Rotate(t.Context())
	runtest.Must(t, err)
	if len(left) != active || left[1].ID.String() != kid(t, second) {
		t.Fatalf("left are %v", left)
	}
	for _, k := range []*Keys{a, b} {
		if got := s.sign(k); kid(t, got) != kid(t, second) {
			t.Error("a key signs that other processes do not know yet")
		}
	}
	if err := s.verify(a, first); !errors.Is(err, ErrInvalid) {
		t.Errorf("of a removed key, in the process that removed it: %v", err)
	}
	runtest.Must(t, s.verify(b, first))
	s.age(known)
	if err := s.verify(b, first); !errors.Is(err, ErrInvalid) {
		t.Errorf("of a removed key, in another process: %v", err)
	}
	third := s.sign(a)
	if kid(t, third) != left[0].ID.String() {
		t.Error("the new key does not sign")
	}
	runtest.Must(t, s.verify(b, second))
	runtest.Must(t, s.verify(b, third))
}

func TestKeys_WhoseSealKeyIsRetired(t *testing.T) {
	s := newScene(t)
	token := s.sign(New(s.Config))
	done, unopened, err := SealedTable().Reseal(t.Context(), s.DB, sealer(t, "21"))
	if err != nil || done != active || unopened != 0 {
		t.Errorf("%d keys are sealed again, %d are not, %v", done, unopened, err)
	}
	s.Sealer = sealer(t, "2")
	runtest.Must(t, s.verify(New(s.Config), s.sign(New(s.Config))))
	s.Sealer = sealer(t, "3")
	lost := New(s.Config)
	runtest.Must(t, s.verify(lost, token))
	if _, err := lost.Sign(t.Context(), typ, s.claims()); !errors.Is(err, ErrNoKey) {
		t.Errorf("signed with a key that cannot be opened: %v", err)
	}
	_, unopened, err = SealedTable().Reseal(t.Context(), s.DB, lost.Sealer)
	if err != nil || unopened != active {
		t.Errorf("%d keys cannot be opened, %v", unopened, err)
	}
	_, err = lost.Rotate(t.Context())
	runtest.Must(t, err)
	runtest.Must(t, s.verify(lost, s.sign(lost)))
}

func TestVerify_Refuses(t *testing.T) {
	s := newScene(t)
	k := New(s.Config)
	good := s.sign(k)
	runtest.Must(t, s.verify(k, good))
	key, err := k.keys(t.Context())
	runtest.Must(t, err)
	made := func(change func(*jwt.Token, *jwt.RegisteredClaims)) string {
		claims := s.claims()
		token := jwt.NewWithClaims(jwt.SigningMethodES256, &claims)
		token.Header["typ"], token.Header["kid"] = typ, key[1].id.String()
		change(token, &claims)
		var by any = key[1].private
		switch token.Method.Alg() {
		case "none":
			by = jwt.UnsafeAllowNoneSignatureType
		case "HS256":
			by = []byte("public")
		}
		text, err := token.SignedString(by)
		runtest.Must(t, err)
		return text
	}
	runtest.Must(t, s.verify(k, made(func(*jwt.Token, *jwt.RegisteredClaims) {})))
	for name, token := range map[string]string{
		"empty": "", "no token": "a.b.c", "cut": good[:len(good)-2], "long": good + strings.Repeat("x", maxToken),
		"other signature": good[:strings.LastIndex(good, ".")+1] + strings.Repeat("A", 86),
		"none":            made(func(o *jwt.Token, _ *jwt.RegisteredClaims) { o.Method, o.Header["alg"] = jwt.SigningMethodNone, "none" }),
		"HMAC": made(func(o *jwt.Token, _ *jwt.RegisteredClaims) {
			o.Method, o.Header["alg"] = jwt.SigningMethodHS256, "HS256"
		}),
		"unknown key":    made(func(o *jwt.Token, _ *jwt.RegisteredClaims) { o.Header["kid"] = uuid.NewString() }),
		"other key":      made(func(o *jwt.Token, _ *jwt.RegisteredClaims) { o.Header["kid"] = key[0].id.String() }),
		"no key":         made(func(o *jwt.Token, _ *jwt.RegisteredClaims) { delete(o.Header, "kid") }),
		"other type":     made(func(o *jwt.Token, _ *jwt.RegisteredClaims) { o.Header["typ"] = "oauth-id-jag+jwt" }),
		"other issuer":   made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.Issuer += "/" }),
		"other audience": made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.Audience[0] = "https://api.example/mcp" }),
		"no audience":    made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.Audience = nil }),
		"no end":         made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.ExpiresAt = nil }),
		"expired":        made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.ExpiresAt = jwt.NewNumericDate(s.clock) }),
		"not yet":        made(func(_ *jwt.Token, c *jwt.RegisteredClaims) { c.NotBefore = jwt.NewNumericDate(s.clock.Add(time.Hour)) }),
	} {
		if err := s.verify(k, token); !errors.Is(err, ErrInvalid) {
			t.Errorf("%s: %v", name, err)
		}
	}
	s.DB.Close()
	s.clock = s.clock.Add(fresh)
	if err := s.verify(k, good); err == nil || errors.Is(err, ErrInvalid) {
		t.Errorf("without a database: %v", err)
	}
}
