package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annals-project/annals/internal/bench/hostile"
)

// SilentName names the attack of bodies that do not arrive, among those of package hostile.
const SilentName = "silent"

const (
	// silentConnections is how many bodies do not arrive at once.
	silentConnections = 200
	// silentAttackers is of how many organizations they are: together these may have more pages at work than there are
	// places.
	silentAttackers = 3
)

// Silent starts a server and measures what a known caller notices of bodies that do not arrive.
func Silent(ctx context.Context, opts HostileOptions) (heard []hostile.Heard, err error) {
	own, err := newOwn(ctx, opts.Program)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, own.remove()) }()
	console, err := freeAddr(ctx)
	if err != nil {
		return nil, err
	}
	own.flags = append([]string{"--rate-limit-per-minute=0", "--console-addr=" + console}, opts.Flags...)
	if _, err := own.start(ctx); err != nil {
		own.showLog(opts.Progress)
		return nil, err
	}
	s := hostile.Silent{
		API: own.url, Console: "http://" + console, Connections: silentConnections, Hold: opts.Sizes.Scaled().Hold / 4,
	}
	if err := parties(ctx, own, &s); err != nil {
		return nil, err
	}
	return s.Run(ctx)
}

// parties makes the organizations: the first attacker's is that of the service.
func parties(ctx context.Context, own *ownServer, s *hostile.Silent) error {
	attacker, neighbour, err := tenants(ctx, own)
	if err != nil {
		return err
	}
	s.Neighbour.Key = neighbour.Key
	if s.Neighbour.Session, err = linkedSession(ctx, own, s.Console, "Neighbour"); err != nil {
		return err
	}
	first := hostile.Party{Key: attacker.Key}
	if first.Session, err = ownerSession(ctx, own, s.Console); err != nil {
		return err
	}
	s.Attackers = []hostile.Party{first}
	for n := 2; n <= silentAttackers; n++ {
		name := fmt.Sprintf("Attacker %d", n)
		more, err := tenantOf(ctx, own, name)
		if err != nil {
			return err
		}
		party := hostile.Party{Key: more.Key}
		if party.Session, err = linkedSession(ctx, own, s.Console, name); err != nil {
			return err
		}
		s.Attackers = append(s.Attackers, party)
	}
	return nil
}

// ownerSession signs the owner of the first organization in.
func ownerSession(ctx context.Context, own *ownServer, console string) (*http.Cookie, error) {
	keys, err := Credentials(own.dir)
	if err != nil {
		return nil, err
	}
	return submit(ctx, console, "/sign-in", url.Values{
		"email": {keys[ownerEmailName]}, "password": {keys[ownerPasswordName]},
	})
}

// linkedSession signs an owner of an organization in, by a link.
func linkedSession(ctx context.Context, own *ownServer, console, organization string) (*http.Cookie, error) {
	var made struct{ Link string }
	err := operate(ctx, own.program, own.dir, &made, "person", "link", "--org", organization,
		strings.ReplaceAll(strings.ToLower(organization), " ", "-")+"@annals.example")
	if err != nil {
		return nil, fmt.Errorf("make a link: %w", err)
	}
	return submit(ctx, console, strings.TrimPrefix(made.Link, console), url.Values{"password": {"a long enough password"}})
}

// submit sends a form of the console, and returns the cookie of the session that it begins.
func submit(ctx context.Context, console, path string, form url.Values) (*http.Cookie, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, console+path, strings.NewReader(form.Encode()))
	if err != nil {
		return nil, fmt.Errorf("make request: %w", err)
	}
	req.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	req.Header.Set("Origin", console)
	client := &http.Client{
		Timeout:       time.Minute,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	res, err := client.Do(req)
	if err != nil {
		return nil, fmt.Errorf("sign in: %w", err)
	}
	defer func() { _ = res.Body.Close() }()
	for _, cookie := range res.Cookies() {
		if strings.HasSuffix(cookie.Name, "session") && cookie.Value != "" {
			return cookie, nil
		}
	}
	return nil, fmt.Errorf("sign in: status %d without a session", res.StatusCode)
}
