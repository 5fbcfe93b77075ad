package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/internal/client"
	"github.com/annals-project/annals/internal/hostile"
	"github.com/annals-project/annals/internal/operator"
)

// HostileCmd is "annals bench hostile". Every attack has a server of its own on a new folder.
type HostileCmd struct {
	hostile.Sizes `embed:""`

	Attacks   []string      `name:"attacks" placeholder:"NAME" help:"Attacks to run, by name; default all."`
	After     time.Duration `name:"after" default:"10s" help:"How long the neighbour goes on after an attack."`
	Longest   time.Duration `name:"longest" default:"15m" help:"Longest that an attack, or what it needs before, may take."`
	StopAtMiB int64         `name:"stop-at" default:"3072" help:"MiB of memory at which a server is killed."`
	Check     bool          `name:"check" help:"Fail where a bound is missed."`
	Flags     []string      `name:"serve-flag" placeholder:"--FLAG=VALUE" help:"More flags of the servers."`
}

// Validate is called by the parser.
func (c *HostileCmd) Validate() error {
	for _, name := range c.Attacks {
		if !slices.ContainsFunc(hostile.Attacks(), func(a hostile.Attack) bool { return a.Name == name }) {
			return fmt.Errorf("--attacks has %q, which is none", name)
		}
	}
	if c.After < 0 || c.After > 10*time.Minute || c.Longest <= 0 || c.Longest > time.Hour || c.StopAtMiB < 1 {
		return errors.New("want --after of at most 10m, --longest of at most 1h, and --stop-at of at least 1")
	}
	return c.Sizes.Validate()
}

// Run runs one attack after the other.
func (c *HostileCmd) Run(ctx context.Context, env *Env) error {
	var missed []string
	for _, attack := range hostile.Attacks() {
		if len(c.Attacks) > 0 && !slices.Contains(c.Attacks, attack.Name) {
			continue
		}
		result, err := c.run(ctx, env.Stderr, attack)
		if err != nil {
			return fmt.Errorf("%s: %w", attack.Name, err)
		}
		if err := result.Write(env.Stdout); err != nil {
			return fmt.Errorf("write result: %w", err)
		}
		if len(result.Missed()) > 0 {
			missed = append(missed, attack.Name)
		}
	}
	if c.Check && len(missed) > 0 {
		return fmt.Errorf("bounds are missed: %s", strings.Join(missed, ", "))
	}
	return nil
}

// run starts a server, prepares an attack, and runs it while a neighbour watches. What the attack does to the server is in the result.
func (c *HostileCmd) run(ctx context.Context, log io.Writer, attack hostile.Attack) (result hostile.Result, err error) {
	result = hostile.Result{Attack: attack, Attacker: &hostile.Answers{}, Neighbour: &hostile.Answers{}}
	own, err := newOwn(ctx)
	if err != nil {
		return result, err
	}
	defer func() { err = errors.Join(err, own.remove()) }()
	own.flags = append([]string{"--rate-limit-per-minute=0"}, c.Flags...)
	if _, err := own.start(ctx); err != nil {
		own.lastWords(log)
		return result, err
	}
	attacker, neighbour, err := c.tenants(ctx, own)
	if err != nil {
		return result, err
	}
	guard := &guard{own: own, limit: c.StopAtMiB << 20}
	guarded, stopGuard := guard.start(ctx, log)
	arena := hostile.NewArena(own.url, attacker, c.Scaled())
	if result.Err = c.prepare(guarded, attack, arena); result.Err == nil {
		result.Attacker = arena.Answers
		result.Before = goroutines(ctx, own.url, 0)
		guard.reset() // the memory of the preparation is not the attack's
		result.Noticed, result.Seconds, result.Err = c.attack(guarded, attack, arena, neighbour, result.Neighbour)
	}
	arena.Close()
	stopGuard()
	result.Resident, result.Restarts = guard.most, guard.restarts
	result.Err = errors.Join(result.Err, guard.err)
	if guard.ended() {
		own.lastWords(log)
		return result, nil
	}
	result.After = goroutines(ctx, own.url, result.Before+50)
	result.Restart, err = c.again(ctx, own)
	if result.Err = errors.Join(result.Err, err); result.Err != nil {
		own.lastWords(log)
	}
	return result, nil
}

// again stops and starts the server: what an attack stored may not keep it from coming back.
func (c *HostileCmd) again(ctx context.Context, own *ownServer) (seconds float64, err error) {
	if err := own.stop(); err != nil {
		return 0, err
	}
	took, err := own.start(ctx)
	if err != nil {
		return took.Seconds(), fmt.Errorf("start after the attack: %w", err)
	}
	return took.Seconds(), nil
}

// tenants makes the attacker in the first organization and the neighbour in another one.
func (c *HostileCmd) tenants(ctx context.Context, own *ownServer) (attacker, neighbour hostile.Tenant, err error) {
	keys, err := readCredentials(own.dir)
	if err != nil {
		return attacker, neighbour, err
	}
	if attacker, err = hostile.MakeTenant(ctx, own.url, keys["ANNALS_MANAGEMENT_KEY"], "attacker"); err != nil {
		return attacker, neighbour, err
	}
	made, err := operator.Dial(own.dir).CreateOrganization(ctx, operator.NewOrganization{Name: "Neighbour", Plan: "self-hosted", By: "bench"})
	if err != nil {
		return attacker, neighbour, fmt.Errorf("create an organization: %w", err)
	}
	if neighbour, err = hostile.MakeTenant(ctx, own.url, made.ManagementKey, "neighbour"); err != nil {
		return attacker, neighbour, err
	}
	return attacker, neighbour, hostile.Settle(ctx, own.url, neighbour)
}

func (c *HostileCmd) prepare(ctx context.Context, attack hostile.Attack, arena *hostile.Arena) error {
	if attack.Prepare == nil {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.Longest)
	defer cancel()
	if err := attack.Prepare(ctx, arena); err != nil {
		return fmt.Errorf("prepare: %w", errors.Join(err, context.Cause(ctx)))
	}
	arena.Answers = &hostile.Answers{}
	return nil
}

// attack runs an attack while the neighbour watches, who goes on for a while.
func (c *HostileCmd) attack(ctx context.Context, attack hostile.Attack, arena *hostile.Arena, neighbour hostile.Tenant, answers *hostile.Answers) (noticed hostile.Noticed, seconds float64, err error) {
	watching, stop := context.WithCancel(ctx)
	defer stop()
	var group sync.WaitGroup
	group.Go(func() { noticed = hostile.Neighbour(watching, arena.Base, neighbour, answers) })
	limited, cancel := context.WithTimeout(ctx, c.Longest)
	defer cancel()
	began := time.Now()
	err = attack.Run(limited, arena)
	seconds = time.Since(began).Seconds()
	if err != nil {
		err = errors.Join(err, context.Cause(limited))
	}
	timer := time.NewTimer(c.After)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
	stop()
	group.Wait()
	return noticed, seconds, err
}

// goroutines is how many the service has, once they are at most so many or a while is over; most 0 waits for nothing.
func goroutines(ctx context.Context, base string, most float64) (count float64) {
	c, err := client.New(base, "", client.Options{Timeout: 10 * time.Second})
	if err != nil {
		return 0
	}
	tick := time.NewTicker(200 * time.Millisecond)
	defer tick.Stop()
	const tries = 150
	for range tries {
		if count, err = c.Metric(ctx, "go_goroutines"); err == nil && (most == 0 || count <= most) {
			return count
		}
		select {
		case <-ctx.Done():
			return count
		case <-tick.C:
		}
	}
	return count
}

// guard watches the memory of an own server, kills it before it takes the machine, and starts it again where it ended.
type guard struct {
	own   *ownServer
	limit int64

	mu       sync.Mutex
	most     int64
	restarts int
	err      error
}

// maxRestarts is how often a server that ends by itself is started again.
const maxRestarts = 3

// start watches until stop is called. The context that it returns ends where the server is given up.
func (g *guard) start(ctx context.Context, log io.Writer) (watched context.Context, stop func()) {
	watched, giveUp := context.WithCancelCause(ctx)
	stopped := make(chan struct{})
	var group sync.WaitGroup
	group.Go(func() {
		tick := time.NewTicker(50 * time.Millisecond)
		defer tick.Stop()
		for {
			select {
			case <-stopped:
				return
			case <-g.own.exited:
				g.own.lastWords(log)
				if err := g.restart(watched); err != nil {
					g.err = err
					giveUp(err)
					return
				}
			case <-tick.C:
				resident, err := hostile.Resident(g.own.process.Process.Pid)
				g.mu.Lock()
				g.most = max(g.most, resident)
				g.mu.Unlock()
				if err != nil || resident > g.limit {
					g.err = errors.Join(err, fmt.Errorf("the server had %d MiB of memory and was killed", resident>>20), g.own.process.Process.Kill())
					<-g.own.exited
					g.restarts++
					giveUp(g.err)
					return
				}
			}
		}
	})
	return watched, func() {
		close(stopped)
		group.Wait()
		giveUp(nil)
	}
}

// restart starts a server that ended by itself.
func (g *guard) restart(ctx context.Context) error {
	if g.restarts++; g.restarts > maxRestarts {
		return fmt.Errorf("the server ended %d times", g.restarts)
	}
	if _, err := g.own.start(ctx); err != nil {
		return fmt.Errorf("start again: %w", err)
	}
	return nil
}

// reset forgets the most memory until now.
func (g *guard) reset() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.most = 0
}

// ended is whether the server does not run any more.
func (g *guard) ended() bool {
	if g.own.process == nil {
		return true
	}
	select {
	case <-g.own.exited:
		return true
	default:
		return false
	}
}
