package signin

import (
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"golang.org/x/oauth2"

	"github.com/annals-project/annals/domain/visit"
	"github.com/annals-project/annals/internal/statement"
)

const (
	// AttemptLife is how long a person may take at the provider.
	AttemptLife = 10 * time.Minute
	// providerTimeout bounds a call to the provider, providerAnswer the bytes of its answer.
	providerTimeout = 10 * time.Second
	providerAnswer  = 1 << 20
)

// What may go wrong with a sign-in at the provider.
var (
	// ErrAttempt is also for one that was finished, or begun in another browser.
	ErrAttempt = errors.New("the sign-in was not begun here, or took too long: begin again")
	// ErrProvider means that the provider did not answer, or that its answer is not to be trusted.
	ErrProvider   = errors.New("the provider did not confirm the sign-in")
	ErrUnverified = errors.New("the provider does not confirm the address")
	// ErrLinked is not the person's mistake: an address may be given to somebody else there.
	ErrLinked    = errors.New("another account is linked to this address: ask an Admin for a link to set a password")
	ErrUninvited = errors.New("nobody with this address is a member here: ask for an invitation")
)

// Provider is the OpenID Connect provider of the deployment.
type Provider struct {
	Issuer, ClientID, ClientSecret string
	// Redirect is the address to which the provider sends people back.
	Redirect string
	// TrustEmail takes an address for verified if the provider does not say whether it is.
	TrustEmail bool
	// Transport makes its calls; nil is that of net/http.
	Transport http.RoundTripper
}

// attempt is a sign-in at the provider that is under way. The browser holds it, sealed.
type attempt struct {
	State, Nonce, Verifier string
	SignUp                 bool
	// Proof is the session whose person proves to be that person, zero for a sign-in.
	Proof uuid.UUID
	Until time.Time

	id uuid.UUID
}

// bounded is a transport whose answers end after some bytes.
type bounded struct{ http.RoundTripper }

func (b bounded) RoundTrip(req *http.Request) (*http.Response, error) {
	res, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, providerAnswer), res.Body}
	}
	return res, err
}

// discover returns the provider and a context for calls to it. The provider is asked for what it can do at the first
// sign-in, so that the service starts without it.
func (s *Service) discover(ctx context.Context) (context.Context, *oidc.Provider, error) {
	transport := s.OIDC.Transport
	if transport == nil {
		transport = http.DefaultTransport
	}
	ctx = oidc.ClientContext(ctx, &http.Client{Transport: bounded{transport}, Timeout: providerTimeout})
	if found := s.provider.Load(); found != nil {
		return ctx, found, nil
	}
	found, err := oidc.NewProvider(ctx, s.OIDC.Issuer)
	if err != nil {
		return ctx, nil, errors.Join(ErrProvider, err)
	}
	s.provider.Store(found)
	return ctx, found, nil
}

func (s *Service) oauth(p *oidc.Provider) *oauth2.Config {
	return &oauth2.Config{
		ClientID: s.OIDC.ClientID, ClientSecret: s.OIDC.ClientSecret, RedirectURL: s.OIDC.Redirect,
		Endpoint: p.Endpoint(), Scopes: []string{oidc.ScopeOpenID, "email", "profile"},
	}
}

// HasProvider reports whether people can sign in at a provider.
func (s *Service) HasProvider() bool { return s.OIDC.Issuer != "" }

// Start begins a sign-in at the provider, or a sign-up. It returns where the browser goes, and the value of a cookie of
// this attempt alone. Its error is ErrProvider.
func (s *Service) Start(ctx context.Context, signUp bool) (redirect, cookie string, err error) {
	return s.begun(ctx, attempt{SignUp: signUp})
}

func (s *Service) begun(ctx context.Context, a attempt) (redirect, cookie string, err error) {
	_, provider, err := s.discover(ctx)
	if err != nil {
		return "", "", err
	}
	a.State, a.Nonce, a.Verifier, a.Until = newToken(), newToken(), oauth2.GenerateVerifier(), s.now().Add(AttemptLife)
	options := []oauth2.AuthCodeOption{oidc.Nonce(a.Nonce), oauth2.S256ChallengeOption(a.Verifier)}
	if a.Proof != uuid.Nil {
		options = append(options, oauth2.SetAuthURLParam("prompt", "login"), oauth2.SetAuthURLParam("max_age", "0"))
	}
	text, _ := json.Marshal(a) // of texts and a time
	id := uuid.New()
	sealed, err := s.Sealer.SealText(id, string(text))
	redirect = s.oauth(provider).AuthCodeURL(a.State, options...)
	return redirect, id.String() + sealed, err
}

// Callback is what the provider sends back, with the cookie of the attempt. Issuer is "" unless it is there.
type Callback struct {
	State, Code, Issuer string
	Cookie              string
	Client              Client
	Former              string
}

// claims are what an ID token has of a person.
type claims struct {
	Subject  string   `json:"sub"`
	Email    string   `json:"email"`
	Verified *boolean `json:"email_verified"`
	Methods  []string `json:"amr"`
	AuthTime int64    `json:"auth_time"`
}

// boolean is a JSON boolean, which some providers write as text.
type boolean bool

// UnmarshalJSON implements json.Unmarshaler.
func (b *boolean) UnmarshalJSON(text []byte) error {
	*b = string(text) == "true" || string(text) == `"true"`
	return nil
}

// secondFactor reports whether the provider checked two factors (RFC 8176).
func (c claims) secondFactor() bool {
	return slices.Contains(c.Methods, "mfa") || slices.Contains(c.Methods, "pwd") &&
		slices.ContainsFunc(c.Methods, func(m string) bool { return slices.Contains([]string{"otp", "hwk", "sc", "fpt"}, m) })
}

// Finish ends a sign-in at the provider with a session, a sign-up with the token of its link, or a proof. Only what
// fails after a good attempt counts: any page can send its visitors here, and nobody can guess an attempt. Its errors
// are ErrAttempt, ErrProvider, ErrUnverified, ErrLinked, ErrUninvited, ErrOtherAccount and *ThrottledError.
func (s *Service) Finish(ctx context.Context, back Callback) (in SignedIn, signUp string, err error) {
	a, err := s.openAttempt(back)
	if err != nil {
		return SignedIn{}, "", err
	}
	spent := false
	err = s.guardedFrom(ctx, ofProvider, back.Client, func(hasher) error {
		if spent, err = s.spendAttempt(ctx, a); err != nil || !spent {
			return err
		}
		if a.Proof != uuid.Nil {
			in, err = s.finishProof(ctx, a, back)
		} else {
			in, signUp, err = s.finish(ctx, a, back)
		}
		return err
	})
	if err == nil && !spent {
		err = ErrAttempt
	}
	return in, signUp, err
}

// finish signs in who comes back from a good attempt.
func (s *Service) finish(ctx context.Context, a attempt, back Callback) (in SignedIn, signUp string, err error) {
	c, err := s.exchange(ctx, a, back)
	if err != nil {
		return SignedIn{}, "", err
	}
	verified := c.Verified == nil && s.OIDC.TrustEmail || c.Verified != nil && bool(*c.Verified)
	in, err = s.holder(ctx, c, verified, a.SignUp)
	if errors.Is(err, ErrUninvited) && a.SignUp && verified {
		signUp, err = s.NewLink(ctx, Link{Purpose: SignUp, Email: c.Email})
		return SignedIn{}, signUp, err
	}
	if err != nil {
		return SignedIn{}, "", err
	}
	second := c.secondFactor()
	in.Pending, in.way = in.Pending && !second, visit.Provider
	in, err = s.begin(ctx, s.DB, back.Client, back.Former, in, second)
	return in, "", err
}

// openAttempt returns the attempt of a cookie, if the browser comes back from it.
func (s *Service) openAttempt(back Callback) (a attempt, err error) {
	length := min(len(uuid.Nil)*9/4, len(back.Cookie)) // of an id as text
	a.id, err = uuid.Parse(back.Cookie[:length])
	text, damaged := s.Sealer.OpenText(a.id, back.Cookie[length:])
	if err != nil || damaged != nil || json.Unmarshal([]byte(text), &a) != nil || !s.now().Before(a.Until) ||
		subtle.ConstantTimeCompare([]byte(a.State), []byte(back.State)) != 1 {
		return attempt{}, ErrAttempt
	}
	return a, nil
}

// spendAttempt reports whether an attempt was not finished before, once.
func (s *Service) spendAttempt(ctx context.Context, a attempt) (spent bool, err error) {
	done, err := statement.Exec(ctx, s.DB, `insert into ops.signin_attempts (id, expires_at) values ($1, $2) on conflict do nothing`,
		a.id, a.Until)
	return done > 0, err
}

// exchange asks the provider for the ID token of a code, and checks it.
func (s *Service) exchange(ctx context.Context, a attempt, back Callback) (c claims, err error) {
	if back.Issuer != "" && back.Issuer != s.OIDC.Issuer {
		return c, fmt.Errorf("%w: the answer is of issuer %q", ErrProvider, back.Issuer)
	}
	ctx, cancel := context.WithTimeout(ctx, 2*providerTimeout)
	defer cancel()
	ctx, provider, err := s.discover(ctx)
	if err != nil {
		return c, err
	}
	tokens, err := s.oauth(provider).Exchange(ctx, back.Code, oauth2.VerifierOption(a.Verifier))
	if err != nil {
		if refused, is := errors.AsType[*oauth2.RetrieveError](err); is {
			err = fmt.Errorf("the provider refuses the code: %s", refused.ErrorCode) // its body may have anything
		}
		return c, errors.Join(ErrProvider, err)
	}
	raw, _ := tokens.Extra("id_token").(string)
	token, err := provider.Verifier(&oidc.Config{ClientID: s.OIDC.ClientID, Now: s.Now}).Verify(ctx, raw)
	if err == nil && subtle.ConstantTimeCompare([]byte(token.Nonce), []byte(a.Nonce)) != 1 {
		err = errors.New("the nonce is another one")
	}
	if err == nil {
		err = token.Claims(&c)
	}
	if err == nil && c.Subject == "" {
		err = errors.New("the ID token names nobody")
	}
	if err != nil {
		return claims{}, errors.Join(ErrProvider, err)
	}
	return c, nil
}

// holder returns the person of an account at the provider: the one it was linked to, or the one who is invited by its
// verified address, and linked to it then. For a sign-up it is a member: an offer keeps nobody from it.
func (s *Service) holder(ctx context.Context, c claims, verified, signUp bool) (SignedIn, error) {
	mayEnter := s.MaySignIn
	if signUp {
		mayEnter = s.IsMember
	}
	in, linked, err := statement.One(ctx, s.DB, scanSignedIn, `select person_id, totp is not null from ops.signin_accounts
		join ops.signin_people using (person_id) where account = $1`, s.accountName(c.Subject))
	if err != nil {
		return in, err
	}
	if !linked {
		if !verified || c.Email == "" {
			return in, ErrUnverified
		}
		if in.Person, err = s.invited(ctx, c.Email, signUp); err != nil {
			return in, err
		}
	} else if may, err := mayEnter(ctx, in.Person); err != nil || !may {
		return in, errors.Join(err, ErrUninvited)
	}
	if linked {
		return in, nil
	}
	err = pgx.BeginFunc(ctx, s.DB, func(tx pgx.Tx) error { return s.linkAccount(ctx, tx, &in, c) })
	if err == nil {
		s.Grants.Record(ctx, in.Person)
	}
	return in, err
}

// invited returns the person of an address that somebody proves now: a member, or who is offered to be one and is
// registered for it, unless it is for a sign-up.
func (s *Service) invited(ctx context.Context, email string, signUp bool) (uuid.UUID, error) {
	id, found, err := s.People.FindPerson(ctx, email)
	if err == nil && found {
		if is, err := s.IsMember(ctx, id); err != nil || is {
			return id, err
		}
	}
	offered := false
	if err == nil && !signUp {
		offered, err = s.Offered(ctx, email)
	}
	if err != nil || !offered {
		return uuid.Nil, errors.Join(err, ErrUninvited)
	}
	return s.People.Register(ctx, email)
}

// accountName is what is stored of an account at the provider.
func (s *Service) accountName(subject string) []byte {
	return s.keyed("provider account", s.OIDC.Issuer+"\x00"+subject)
}

// linkAccount links an account to a person, whose address it proves. If that is the first proof, the password, the
// second factor and the sessions end: who set them may be somebody else.
func (s *Service) linkAccount(ctx context.Context, tx pgx.Tx, in *SignedIn, c claims) error {
	if _, err := s.proveAddress(ctx, tx, in.Person, s.addressName(c.Email)); err != nil {
		return err
	}
	type state struct{ Pending, Linked bool }
	now, _, err := statement.One(ctx, tx, pgx.RowToStructByPos[state], `select totp is not null,
		exists (select from ops.signin_accounts a where a.person_id = $1 and issuer = $2)
		from ops.signin_people where person_id = $1`, in.Person, s.OIDC.Issuer)
	if err == nil && now.Linked {
		err = ErrLinked
	}
	if in.Pending = now.Pending; err == nil {
		_, err = statement.Exec(ctx, tx, `insert into ops.signin_accounts (issuer, account, person_id) values ($1, $2, $3)
			on conflict (account) do nothing`, s.OIDC.Issuer, s.accountName(c.Subject), in.Person)
	}
	return err
}
