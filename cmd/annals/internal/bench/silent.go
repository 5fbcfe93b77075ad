package bench

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/internal/bench/hostile"
)

// SilentName names the attack of bodies that do not arrive, among those of package hostile.
const SilentName = "silent"

// silentConnections is how many bodies do not arrive at once.
const silentConnections = 200

// Silent starts a server and measures what a known caller notices of bodies that do not arrive.
func Silent(ctx context.Context, opts HostileOptions) (heard []hostile.Heard, err error) {
	own, err := newOwn(ctx)
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
	attacker, neighbour, err := tenants(ctx, own)
	if err != nil {
		return nil, err
	}
	sizes := opts.Sizes.Scaled()
	s := hostile.Silent{
		API: own.url, Console: "http://" + console, Connections: silentConnections, Hold: sizes.Hold / 4,
		Attacker: hostile.Party{Key: attacker.Key}, Neighbour: hostile.Party{Key: neighbour.Key},
	}
	if s.Attacker.Session, err = ownerSession(ctx, own, s.Console); err != nil {
		return nil, err
	}
	if s.Neighbour.Session, err = linkedSession(ctx, own, s.Console); err != nil {
		return nil, err
	}
	return s.Run(ctx)
}

// ownerSession signs the owner of the first organization in.
func ownerSession(ctx context.Context, own *ownServer, console string) (*http.Cookie, error) {
	keys, err := datafolder.ReadCredentials(own.dir)
	if err != nil {
		return nil, err
	}
	return submit(ctx, console, "/sign-in", url.Values{
		"email": {keys[datafolder.OwnerEmailName]}, "password": {keys[datafolder.OwnerPasswordName]},
	})
}

// linkedSession signs an owner of the neighbour's organization in, by a link.
func linkedSession(ctx context.Context, own *ownServer, console string) (*http.Cookie, error) {
	made, err := operatorapi.LinkPerson.Call(ctx, operatorapi.Dial(own.dir), operatorapi.PersonLinkRequest{
		Target: operatorapi.Target{By: "bench", Organization: "Neighbour"}, Email: "neighbour@annals.example",
	})
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
