package bench

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/hostile"
)

// HostileOptions are the sizes of the attacks and the limits of their servers.
type HostileOptions struct {
	Sizes hostile.Sizes
	// After is how long the neighbour continues after an attack, Longest the longest time that an
	// attack or its preparation may take.
	After, Longest time.Duration
	// StopAt is the memory in bytes at which a server is killed.
	StopAt int64
	// Program is the program of the servers.
	Program string
	// Flags are additional flags of the servers.
	Flags []string
	// Progress receives the log of a server that fails.
	Progress io.Writer
}

// Hostile starts a server, prepares an attack, and runs it while a neighbour watches. The effect on
// the server is in the result.
func Hostile(ctx context.Context, opts HostileOptions, attack hostile.Attack) (result hostile.Result, err error) {
	result = hostile.Result{Attack: attack, Attacker: &hostile.Answers{}, Neighbour: &hostile.Answers{}}
	own, err := newOwn(ctx, opts.Program)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, own.remove()) }()
	own.flags = append([]string{"--rate-limit-per-minute=0"}, opts.Flags...)
	if _, err := own.start(ctx); err != nil {
		own.showLog(opts.Progress)
		return result, err
	}
	attacker, neighbour, err := tenants(ctx, own)
	if err != nil {
		return result, err
	}
	guard := &guard{own: own, limit: opts.StopAt}
	guarded, stopGuard := guard.start(ctx, opts.Progress)
	arena := hostile.NewArena(own.url, attacker, opts.Sizes.Scaled())
	arena.Console = own.console
	if result.Err = opts.prepare(guarded, attack, arena); result.Err == nil {
		watch := func(run func(context.Context, *hostile.Arena) error) (noticed hostile.Noticed, seconds float64, err error) {
			guard.reset() // leave out the memory of what was before
			return opts.attack(guarded, run, arena, neighbour, result.Neighbour)
		}
		result.Idle, result.Err = hostile.Resident(own.process.Process.Pid)
		if attack.Plain != nil && result.Err == nil {
			result.Plain, _, result.Err = watch(attack.Plain)
			result.PlainResident, arena.Answers = guard.peak(), &hostile.Answers{}
		}
		result.Attacker = arena.Answers
		result.Before = goroutines(ctx, own.url, 0)
		if result.Err == nil {
			result.Noticed, result.Seconds, result.Err = watch(attack.Run)
		}
	}
	arena.Close()
	stopGuard()
	result.Resident, result.Restarts = guard.most, guard.restarts
	result.Err = errors.Join(result.Err, guard.err)
	if guard.ended() {
		own.showLog(opts.Progress)
		return result, nil
	}
	result.After = goroutines(ctx, own.url, result.Before+50)
	result.Restart, err = again(ctx, own)
	if result.Err = errors.Join(result.Err, err); result.Err != nil {
		own.showLog(opts.Progress)
	}
	return result, nil
}

// again restarts the server: it must start with everything that an attack stored.
func again(ctx context.Context, own *ownServer) (seconds float64, err error) {
	if err := own.stop(); err != nil {
		return 0, err
	}
	took, err := own.start(ctx)
	if err != nil {
		return took.Seconds(), fmt.Errorf("start after the attack: %w", err)
	}
	return took.Seconds(), nil
}

// tenants creates the attacker in the first organization and the neighbour in another one.
func tenants(ctx context.Context, own *ownServer) (attacker, neighbour hostile.Tenant, err error) {
	keys, err := Credentials(own.dir)
	if err != nil {
		return attacker, neighbour, err
	}
	if attacker, err = hostile.MakeTenant(ctx, own.url, keys[managementKeyName], "attacker"); err != nil {
		return attacker, neighbour, err
	}
	if attacker.Webhook, err = webhookOf(ctx, own, attacker.Slug); err != nil {
		return attacker, neighbour, err
	}
	if neighbour, err = tenantOf(ctx, own, "Neighbour"); err != nil {
		return attacker, neighbour, err
	}
	return attacker, neighbour, hostile.Settle(ctx, own.url, neighbour)
}

// tenantOf creates a tenant in an organization of its own, of the same name.
func tenantOf(ctx context.Context, own *ownServer, name string) (tenant hostile.Tenant, err error) {
	var made struct{ ManagementKey string }
	err = operate(ctx, own.program, own.dir, &made, "org", "create", "--plan", "self-hosted", name)
	if err != nil {
		return tenant, fmt.Errorf("create an organization: %w", err)
	}
	return hostile.MakeTenant(ctx, own.url, made.ManagementKey, name)
}

// webhookOf creates a webhook with the most filters, and returns its URL.
func webhookOf(ctx context.Context, own *ownServer, project string) (string, error) {
	args := []string{"webhook", "create", "--project", project, "--name", "bench", "--content-path", "$.content"}
	for n := range limit.WebhookFilters {
		args = append(args, "--filter", fmt.Sprintf("$.%s.b%d is c", strings.Repeat("a", 63), n))
	}
	var made struct{ URL string }
	err := operate(ctx, own.program, own.dir, &made, args...)
	if err != nil {
		return "", fmt.Errorf("create a webhook: %w", err)
	}
	return made.URL, nil
}

func (o HostileOptions) prepare(ctx context.Context, attack hostile.Attack, arena *hostile.Arena) error {
	if attack.Prepare == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.Longest)
	defer cancel()
	if err := attack.Prepare(ctx, arena); err != nil {
		return fmt.Errorf("prepare: %w", errors.Join(err, context.Cause(ctx)))
	}
	arena.Answers = &hostile.Answers{}
	return nil
}

// attack runs an attack while the neighbour watches. The neighbour continues for a while afterwards.
func (o HostileOptions) attack(
	ctx context.Context, run func(context.Context, *hostile.Arena) error, arena *hostile.Arena, neighbour hostile.Tenant,
	answers *hostile.Answers,
) (noticed hostile.Noticed, seconds float64, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { noticed = hostile.Neighbour(watching, arena.Base, neighbour, answers) })
	limited, cancel := context.WithTimeout(ctx, o.Longest)
	defer cancel()
	began := time.Now()
	err = run(limited, arena)
	seconds = time.Since(began).Seconds()
	if err != nil {
		err = errors.Join(err, context.Cause(limited))
	}
	_ = backoff.Pause(ctx, o.After, nil)
	stop()
	group.Wait()
	return noticed, seconds, err
}

// HostileNames are the names of all attacks.
func HostileNames() (names []string) {
	for _, attack := range hostile.Attacks() {
		names = append(names, attack.Name)
	}
	return append(names, SilentName)
}

// HostileAll runs the named attacks, or all of them, one after the other, and writes their results. missed are those
// whose bounds were exceeded.
func HostileAll(ctx context.Context, opts HostileOptions, names []string, to io.Writer) (missed []string, err error) {
	runs := func(name string) bool { return len(names) == 0 || slices.Contains(names, name) }
	for _, attack := range hostile.Attacks() {
		if !runs(attack.Name) {
			continue
		}
		result, err := Hostile(ctx, opts, attack)
		if err != nil {
			return missed, fmt.Errorf("%s: %w", attack.Name, err)
		}
		if err := result.Write(to); err != nil {
			return missed, fmt.Errorf("write result: %w", err)
		}
		if len(result.Missed()) > 0 {
			missed = append(missed, attack.Name)
		}
	}
	if !runs(SilentName) {
		return missed, nil
	}
	heard, err := Silent(ctx, opts)
	for _, h := range heard {
		err = errors.Join(err, h.Write(to))
		if len(h.Missed()) > 0 {
			missed = append(missed, SilentName+" at "+h.Attacked)
		}
	}
	if err != nil {
		return missed, fmt.Errorf("%s: %w", SilentName, err)
	}
	return missed, nil
}

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
