package clustertest

import (
	"bufio"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/url"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/annals-project/annals/eventstore/node"
	"github.com/annals-project/annals/eventstore/node/nodetest"
	"github.com/annals-project/annals/internal/runtest"
)

// Password is that of the user "admin". It has characters that a connection string escapes.
const Password = "open, sesame?/#@%"

// Cluster is a scripted cluster. Its methods may be called concurrently, also from goroutines.
type Cluster struct {
	t testing.TB
	// Node holds the log of all members.
	Node *node.Node
	// CAFile is the certificate file by which the members are known.
	CAFile  string
	key     string
	members []*process

	mu     sync.Mutex
	leader string
	dead   []string
}

// process is a member as the test sees it.
type process struct {
	addr string

	mu      sync.Mutex
	script  Script
	number  int
	last    report
	cmd     *exec.Cmd // nil while it is dead
	stdin   io.WriteCloser
	reports *bufio.Scanner
	frozen  bool
}

// Start starts a number of members, of which the first leads. They end with the test.
func Start(t testing.TB, members int) *Cluster {
	t.Helper()
	cert, key, _ := nodetest.Files(t, "ca.pem", Password)
	pair, err := tls.LoadX509KeyPair(cert, key)
	runtest.Must(t, err)
	log, err := node.Start(context.Background(), node.Config{
		Dir: "log", FS: vfs.NewMem(), Certificate: &pair, Password: Password, Logger: slog.New(slog.DiscardHandler),
	})
	runtest.Must(t, err)
	c := &Cluster{t: t, Node: log, CAFile: cert, key: key}
	t.Cleanup(func() {
		for i := range c.members {
			c.Kill(i)
		}
		if err := log.Close(); err != nil {
			t.Errorf("close the log of the cluster: %v", err)
		}
	})
	for range members {
		c.members = append(c.members, &process{addr: freeAddress(t)})
	}
	c.leader = c.members[0].addr
	for i := range c.members {
		c.Return(i)
	}
	return c
}

// freeAddress is an address of the loopback that nobody listens on. Its port is none that a system
// gives to connections by itself, and the UDP port of the same number keeps other clusters from it
// until the end of the test, so that a member that was dead gets it again.
func freeAddress(t testing.TB) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprint("127.0.0.1:", 12_000+rand.N(20_000))
		reserved, err := net.ListenPacket("udp", addr)
		if err != nil {
			continue
		}
		listener, err := net.Listen("tcp", addr)
		if err != nil {
			_ = reserved.Close()
			continue
		}
		runtest.Must(t, listener.Close())
		t.Cleanup(func() { _ = reserved.Close() })
		return addr
	}
	t.Fatal("no port is free")
	return ""
}

// ConnectionString names every member, the user and the certificate. The settings are name=value.
func (c *Cluster) ConnectionString(settings ...string) string {
	return c.At(c.Addresses(), settings...)
}

// At is ConnectionString with other hosts.
func (c *Cluster) At(hosts []string, settings ...string) string {
	settings = append([]string{"tlsCAFile=" + url.QueryEscape(c.CAFile)}, settings...)
	return "esdb+discover://" + url.UserPassword("admin", Password).String() + "@" + strings.Join(hosts, ",") +
		"?" + strings.Join(settings, "&")
}

// Addresses are those of the members.
func (c *Cluster) Addresses() []string {
	all := make([]string, len(c.members))
	for i, p := range c.members {
		all[i] = p.addr
	}
	return all
}

// Lead makes a member the leader. The gossip of all shows it, and shows members that are dead or
// frozen as such. A number below 0 leaves the cluster without a leader.
func (c *Cluster) Lead(i int) {
	c.mu.Lock()
	c.leader, c.dead = "", nil
	if i >= 0 {
		c.leader = c.members[i].addr
	}
	for _, p := range c.members {
		p.mu.Lock()
		if p.cmd == nil || p.frozen {
			c.dead = append(c.dead, p.addr)
		}
		p.mu.Unlock()
	}
	c.mu.Unlock()
	for i := range c.members {
		c.Script(i, func(*Script) {})
	}
}

// Script changes how a member behaves. It returns once the member does so; one that is dead or frozen
// does so once it is back.
func (c *Cluster) Script(i int, change func(*Script)) { c.command(i, command{}, change) }

// LoseRequests breaks all connections of a member at its next writes, in place of doing them.
func (c *Cluster) LoseRequests(i, writes int) {
	c.command(i, command{LoseRequests: writes}, func(*Script) {})
}

// LoseAnswers breaks all connections of a member after its next writes are in the log.
func (c *Cluster) LoseAnswers(i, writes int) {
	c.command(i, command{LoseAnswers: writes}, func(*Script) {})
}

// TimeOut makes a member answer its next writes "Operation timed out" with the text of a phase:
// after they are in the log if executed is set, else in place of doing them.
func (c *Cluster) TimeOut(i, writes int, phase string, executed bool) {
	c.command(i, command{TimeOuts: timeOuts{Writes: writes, Phase: phase, Executed: executed}}, func(*Script) {})
}

// AwaitTwins makes a member that has CommitTimeouts commit each of its next appends only after it has
// answered an equal one "Commit phase timeout.".
func (c *Cluster) AwaitTwins(i, appends int) {
	c.command(i, command{AwaitTwins: appends}, func(*Script) {})
}

// Cut breaks all connections of a member now.
func (c *Cluster) Cut(i int) { c.command(i, command{Cut: true}, func(*Script) {}) }

// Calls is how many calls of streams a member was asked for, those that it refused included.
func (c *Cluster) Calls(i int) int { return c.report(i).Calls }

// Questions is how often a member was asked for gossip, those that it refused included.
func (c *Cluster) Questions(i int) int { return c.report(i).Questions }

// TimedOut is how many writes a member answered "Operation timed out".
func (c *Cluster) TimedOut(i int) int { return c.report(i).TimedOut }

// report returns the counts of a member; of one that is dead or frozen, the last that it reported.
func (c *Cluster) report(i int) report {
	c.command(i, command{}, func(*Script) {})
	c.members[i].mu.Lock()
	defer c.members[i].mu.Unlock()
	return c.members[i].last
}

func (c *Cluster) command(i int, cmd command, change func(*Script)) {
	c.mu.Lock()
	leader, dead := c.leader, slices.Clone(c.dead)
	c.mu.Unlock()
	p := c.members[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	change(&p.script)
	p.script.Members, p.script.Leader, p.script.Dead = c.Addresses(), leader, dead
	if p.cmd == nil {
		return
	}
	p.number++
	cmd.Number, cmd.Script = p.number, p.script
	line, err := json.Marshal(cmd)
	if err == nil {
		_, err = p.stdin.Write(append(line, '\n'))
	}
	if err == nil && !p.frozen {
		err = p.await(p.number)
	}
	if err != nil {
		c.t.Errorf("member %d: %v", i, err)
	}
}

// await reads reports up to that of a command.
func (p *process) await(number int) error {
	for p.reports.Scan() {
		var r report
		if err := json.Unmarshal(p.reports.Bytes(), &r); err != nil {
			return err
		}
		if p.last = r; r.Number == number {
			return nil
		}
	}
	return fmt.Errorf("it ended: %w", errors.Join(p.reports.Err(), io.EOF))
}

// Kill ends a member as a crash does. The gossip of the others shows that after the next Lead.
func (c *Cluster) Kill(i int) {
	p := c.members[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	if err := p.cmd.Process.Kill(); err != nil {
		c.t.Errorf("member %d: %v", i, err)
	}
	_ = p.stdin.Close()
	_ = p.cmd.Wait() // it was killed
	p.cmd, p.frozen = nil, false
}

// Return starts a member that is dead, at the same address.
func (c *Cluster) Return(i int) {
	c.t.Helper()
	p := c.members[i]
	p.mu.Lock()
	err := p.start(c)
	p.mu.Unlock()
	if err != nil {
		c.t.Errorf("start member %d: %v", i, err)
		return
	}
	c.Script(i, func(*Script) {})
}

func (p *process) start(c *Cluster) (err error) {
	text, err := json.Marshal(setup{Addr: p.addr, Cert: c.CAFile, Key: c.key, Node: c.Node.Connection().Addr})
	if err != nil {
		return err
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.Command(program)
	cmd.Env = append(os.Environ(), setupVariable+"="+string(text))
	cmd.Stderr = c.t.Output()
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if p.stdin, err = cmd.StdinPipe(); err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	p.cmd, p.reports, p.number = cmd, bufio.NewScanner(stdout), 0
	return nil
}

// Freeze stops a member without ending it: its connections stay open and nothing answers.
func (c *Cluster) Freeze(i int) {
	c.signal(i, syscall.SIGSTOP, true, func(pid int) error {
		// The signal takes a while to reach every thread.
		for {
			if _, err := syscall.Wait4(pid, nil, syscall.WUNTRACED, nil); !errors.Is(err, syscall.EINTR) {
				return err
			}
		}
	})
}

// Thaw lets a frozen member continue with what it was doing.
func (c *Cluster) Thaw(i int) {
	c.signal(i, syscall.SIGCONT, false, func(int) error { return nil })
	c.Script(i, func(*Script) {})
}

func (c *Cluster) signal(i int, s syscall.Signal, frozen bool, await func(pid int) error) {
	p := c.members[i]
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.cmd == nil {
		return
	}
	err := p.cmd.Process.Signal(s)
	if err == nil {
		err = await(p.cmd.Process.Pid)
	}
	if err != nil {
		c.t.Errorf("member %d: %v", i, err)
	}
	p.frozen = frozen
}

// Until waits until something is true, and fails the test at the end of the context.
func Until(ctx context.Context, t testing.TB, what string, is func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("never: %s", what)
		}
	}
}
