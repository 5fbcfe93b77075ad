package tokens

import (
	"context"
	"encoding/base64"
	"errors"
	"fmt"

	"github.com/golang-jwt/jwt/v5"
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
