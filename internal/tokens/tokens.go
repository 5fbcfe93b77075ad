// Package tokens signs JSON web tokens and verifies them, with keys that all processes share.
package tokens

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/golang-jwt/jwt/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/sealedtables"
	"github.com/annals-project/annals/internal/secret"
)

// ErrInvalid reports a token that is not ours, is for something else, or has expired.
var ErrInvalid = errors.New("the token is invalid or has expired")

// maxToken bounds the bytes of a token that is looked at.
const maxToken = 8 << 10

// Sign returns a token of a type with some claims.
func (k *Keys) Sign(ctx context.Context, typ string, claims jwt.Claims) (string, error) {
	list, err := k.keys(ctx)
	if err != nil {
		return "", err
	}
	by, err := signer(list)
	if err != nil {
		return "", err
	}
	token := jwt.NewWithClaims(jwt.SigningMethodES256, claims)
	token.Header["typ"], token.Header["kid"] = typ, by.id.String()
	signed, err := token.SignedString(by.private)
	if err != nil {
		return "", fmt.Errorf("sign a token: %w", err)
	}
	return signed, nil
}

// Verify reads the claims of a token, which has a type, an issuer, an audience and an end in the future. Its error is
// ErrInvalid, or that of the database.
func (k *Keys) Verify(ctx context.Context, token, typ, issuer, audience string, claims jwt.Claims) error {
	if len(token) > maxToken {
		return ErrInvalid
	}
	list, err := k.keys(ctx)
	if err != nil {
		return err
	}
	parser := jwt.NewParser(jwt.WithValidMethods([]string{jwt.SigningMethodES256.Alg()}), jwt.WithIssuer(issuer),
		jwt.WithAudience(audience), jwt.WithExpirationRequired(), jwt.WithStrictDecoding(), jwt.WithTimeFunc(k.Now))
	_, err = parser.ParseWithClaims(token, claims, func(t *jwt.Token) (any, error) {
		for _, one := range list {
			if t.Header["kid"] == one.id.String() && t.Header["typ"] == typ {
				return one.public, nil
			}
		}
		return nil, ErrInvalid
	})
	if err != nil {
		return fmt.Errorf("%w: %w", ErrInvalid, err)
	}
	return nil
}

// JWKS is a set of public keys (RFC 7517).
type JWKS struct {
	Keys []JWK `json:"keys"`
}

// JWK is a public key.
type JWK struct {
	Type  string `json:"kty"`
	Use   string `json:"use"`
	Alg   string `json:"alg"`
	ID    string `json:"kid"`
	Curve string `json:"crv"`
	X     string `json:"x"`
	Y     string `json:"y"`
}

// Set returns the public keys, the newest first.
func (k *Keys) Set(ctx context.Context) (JWKS, error) {
	list, err := k.keys(ctx)
	if err != nil {
		return JWKS{}, err
	}
	set := JWKS{Keys: make([]JWK, len(list))}
	for i, one := range list {
		point, err := one.public.Bytes() // 4, and X and Y of 32 bytes
		if err != nil {
			return JWKS{}, fmt.Errorf("encode a public key: %w", err)
		}
		x, y := base64.RawURLEncoding.EncodeToString(point[1:33]), base64.RawURLEncoding.EncodeToString(point[33:])
		set.Keys[i] = JWK{"EC", "sig", "ES256", one.id.String(), "P-256", x, y}
	}
	return set, nil
}

const (
	// active is how many keys verify.
	active = 2
	// fresh is how long a process uses the keys that it has read. Known is the age from which a key is known everywhere.
	fresh = 4 * time.Second
	known = 5 * time.Second
)

// ErrNoKey reports that no signing key can be opened.
var ErrNoKey = errors.New("no signing key can be opened: annals signing-keys rotate makes one")

// Config is what Keys need.
type Config struct {
	DB *pgxpool.Pool
	// Sealer opens the private keys. A process without it verifies, and signs nothing.
	Sealer *secret.Sealer
	Now    func() time.Time // nil: time.Now
}

// Keys are the signing keys. Use New.
type Keys struct {
	Config

	mu     sync.Mutex
	list   []key
	readAt time.Time
}

// key is a signing key.
type key struct {
	id      uuid.UUID
	public  *ecdsa.PublicKey
	private *ecdsa.PrivateKey // nil where it cannot be opened
	age     time.Duration     // when it was read
}

// New makes keys. They are read, or made, when they are used first.
func New(c Config) *Keys {
	if c.Now == nil {
		c.Now = time.Now
	}
	return &Keys{Config: c}
}

// Key is a signing key as an operator sees it.
type Key struct {
	ID        uuid.UUID `json:"id"`
	CreatedAt time.Time `json:"createdAt"`
}

// Rotate makes a key, which signs from 5 s on, and removes all but that and the one before it: what they signed is
// invalid from then on, everywhere within 5 s. It returns the keys that are left, the newest first.
func (k *Keys) Rotate(ctx context.Context) (left []Key, err error) {
	err = k.change(ctx, func(tx pgx.Tx) error {
		if err := k.add(ctx, tx); err != nil {
			return err
		}
		rows, err := tx.Query(ctx, `with left_over as (select id from ops.signing_keys order by created_at desc, id limit $1),
			gone as (delete from ops.signing_keys where id not in (select id from left_over))
			select id, created_at from ops.signing_keys where id in (select id from left_over) order by created_at desc, id`, active)
		if err == nil {
			left, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Key])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("rotate the signing keys: %w", err)
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	k.list = nil
	return left, nil
}

// change runs a transaction that alone changes the keys.
func (k *Keys) change(ctx context.Context, do func(pgx.Tx) error) error {
	return pgx.BeginFunc(ctx, k.DB, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, `lock table ops.signing_keys in share row exclusive mode`); err != nil {
			return err
		}
		return do(tx)
	})
}

func (k *Keys) add(ctx context.Context, tx pgx.Tx) error {
	if k.Sealer == nil {
		return ErrNoKey
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return err
	}
	public, err := x509.MarshalPKIXPublicKey(&private.PublicKey)
	if err != nil {
		return err
	}
	id := uuid.New()
	sealed, err := k.seal(id, private)
	if err != nil {
		return err
	}
	_, err = tx.Exec(ctx, `insert into ops.signing_keys (id, public, seal_key, sealed) values ($1, $2, $3, $4)`,
		id, public, sealed.Key, sealed.Data)
	return err
}

func (k *Keys) seal(id uuid.UUID, private *ecdsa.PrivateKey) (secret.Sealed, error) {
	clear, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return secret.Sealed{}, err
	}
	return k.Sealer.Seal(id, string(clear))
}

// keys returns the active keys, the newest first. Where there are none yet, a process that can seal makes them.
func (k *Keys) keys(ctx context.Context) ([]key, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if len(k.list) > 0 && k.Now().Sub(k.readAt).Abs() < fresh {
		return k.list, nil
	}
	at := k.Now()
	list, err := k.read(ctx, k.DB)
	if err == nil && len(list) == 0 && k.Sealer != nil {
		err = k.change(ctx, func(tx pgx.Tx) error {
			if list, err = k.read(ctx, tx); err != nil || len(list) > 0 {
				return err
			}
			for range active {
				if err := k.add(ctx, tx); err != nil {
					return err
				}
			}
			list, err = k.read(ctx, tx)
			return err
		})
	}
	if err != nil {
		return nil, fmt.Errorf("read the signing keys: %w", err)
	}
	k.list, k.readAt = list, at
	return list, nil
}

// SealedTable is the table of the keys, whose private parts are sealed.
func SealedTable() secret.Table {
	return secret.Table{
		Name: "ops.signing_keys", Values: "keys that sign tokens of agents",
		Lost: "annals signing-keys rotate makes new ones",
		ID:   "id", Key: "seal_key", Data: "sealed",
	}
}

type querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

func (k *Keys) read(ctx context.Context, db querier) (list []key, err error) {
	rows, err := db.Query(ctx, `select id, public, seal_key, sealed, clock_timestamp() - created_at
		from ops.signing_keys order by created_at desc, id limit $1`, active)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (one key, err error) {
		var public []byte
		var sealed secret.Sealed
		if err := row.Scan(&one.id, &public, &sealed.Key, &sealed.Data, &one.age); err != nil {
			return key{}, err
		}
		parsed, err := x509.ParsePKIXPublicKey(public)
		if err != nil {
			return key{}, err
		}
		var is bool
		if one.public, is = parsed.(*ecdsa.PublicKey); !is || one.public.Curve != elliptic.P256() {
			return key{}, errors.New("a public key is not one of ES256")
		}
		one.private, err = k.open(one, sealed)
		return one, err
	})
}

// open returns the private part of a key, nil if this process cannot open it.
func (k *Keys) open(of key, sealed secret.Sealed) (*ecdsa.PrivateKey, error) {
	if k.Sealer == nil {
		return nil, nil //nolint:nilnil // a process that only verifies
	}
	clear, err := k.Sealer.Open(of.id, sealed)
	if errors.Is(err, secret.ErrSealKeyUnknown) {
		return nil, nil //nolint:nilnil // it still verifies
	}
	if err != nil {
		return nil, err
	}
	parsed, err := x509.ParsePKCS8PrivateKey([]byte(clear))
	if err != nil {
		return nil, err
	}
	private, is := parsed.(*ecdsa.PrivateKey)
	if !is || !private.PublicKey.Equal(of.public) {
		return nil, errors.New("a private key is not that of its public key")
	}
	return private, nil
}

// signer is the key that signs: the newest that is known everywhere, else the oldest.
func signer(list []key) (one key, err error) {
	for _, candidate := range list {
		if candidate.private != nil && (one.private == nil || one.age < known) {
			one = candidate
		}
	}
	if one.private == nil {
		return key{}, ErrNoKey
	}
	return one, nil
}

// Tables are those that a backup holds.
func Tables() []sealedtables.Table {
	return []sealedtables.Table{{Key: "signingKeys", Name: "ops.signing_keys"}}
}
