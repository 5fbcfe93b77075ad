package hostile

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/bench/load"
)

// Party is an organization at both addresses of a service.
type Party struct {
	Key string
	// Session is the cookie of somebody who is signed in at the console.
	Session *http.Cookie
}

// Silent is the environment of bodies that do not arrive: those of several organizations from five addresses of the
// loopback network, on one route of each class in turn, while another organization that the service knows calls from
// another address.
type Silent struct {
	API, Console string
	Attackers    []Party
	Neighbour    Party
	// Connections is how many bodies do not arrive at once, Hold how long on each route.
	Connections int
	Hold        time.Duration
}

const (
	// maxKnown is the most that the 95th percentile of the calls of a known caller may be, in milliseconds.
	maxKnown = 1000
	// knownPause is the pause between two calls of one class, docsPause that between those that an address may make only
	// once a second.
	knownPause = 200 * time.Millisecond
	docsPause  = 1500 * time.Millisecond
	// sources is from how many addresses bodies come.
	sources = 5
)

// class is a route that stands for others which read their bodies alike.
type class struct {
	name, method, path string
	// console is true at the console's address.
	console bool
	// known is true if the caller has a key or a session.
	known       bool
	contentType string
	// body is a short call. length is that of a body that does not arrive.
	body   string
	length int
	pause  time.Duration
	// opened is true if the neighbour opens the page: failed attempts to sign in are throttled.
	opened bool
}

const (
	form     = "application/x-www-form-urlencoded"
	jsonType = "application/json"
)

func classes() []class {
	const (
		shortBody = 60_000
		rpc       = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":`
	)
	return []class{
		{"sign-in", http.MethodPost, "/sign-in", true, false, form, "email=a%40b.example", shortBody, knownPause, true},
		{"token", http.MethodPost, "/oauth2/token", true, false, form, "grant_type=none", shortBody, knownPause, false},
		{"agents", http.MethodPost, "/agent/identity", true, false, jsonType, `{"type":"none"}`, shortBody, knownPause, false},
		{
			"documentation", http.MethodPost, "/docs/mcp", true, false, jsonType,
			rpc + `"search_docs","arguments":{"query":"key"}}}`, shortBody, docsPause, false,
		},
		{
			"MCP", http.MethodPost, "/mcp", true, true, jsonType, rpc + `"recall","arguments":{"query":"tea","identity":"walk"}}}`,
			3 << 20, knownPause, false,
		},
		{"page", http.MethodPost, "/account/zone", true, true, form, "zone=UTC", shortBody, knownPause, false},
		{
			"ingest", http.MethodPost, "/api/v1/ingest", false, true, jsonType, `{"id":"silent","content":"Tea."}`, 90 << 20,
			knownPause, false,
		},
		{
			"recall", http.MethodPost, "/api/v1/recall", false, true, jsonType, `{"query":"tea","identity":"walk"}`, 1 << 20,
			knownPause, false,
		},
	}
}

// Heard is what a known caller was answered by the classes, while the bodies of one class did not arrive.
type Heard struct {
	Attacked string
	Times    map[string]load.Times
	Answers  map[string]*Answers
	Attacker *Answers
}

// Run holds bodies back, class by class.
func (s Silent) Run(ctx context.Context) (heard []Heard, err error) {
	for _, attacked := range classes() {
		h := Heard{attacked.name, map[string]load.Times{}, map[string]*Answers{}, &Answers{}}
		if err := s.attack(ctx, attacked, h); err != nil {
			return heard, err
		}
		heard = append(heard, h)
	}
	return heard, nil
}

func (s Silent) attack(ctx context.Context, attacked class, h Heard) error {
	attacking, stop := context.WithTimeout(ctx, s.Hold)
	defer stop()
	var working sync.WaitGroup
	for n := range s.Connections {
		working.Go(func() {
			for attacking.Err() == nil {
				s.hold(attacking, attacked, n, h.Attacker)
				_ = backoff.Pause(attacking, probeEvery, nil) // the loop checks the context
			}
		})
	}
	var calling sync.WaitGroup
	var mu sync.Mutex
	for _, c := range classes() {
		answers := &Answers{}
		h.Answers[c.name] = answers
		calling.Go(func() {
			times := s.call(attacking, c, answers)
			mu.Lock()
			defer mu.Unlock()
			h.Times[c.name] = times
		})
	}
	calling.Wait()
	working.Wait()
	return ctx.Err()
}

// call makes the calls of a class as the neighbour, until the context ends.
func (s Silent) call(ctx context.Context, c class, answers *Answers) (times load.Times) {
	transport := http.DefaultTransport.(*http.Transport).Clone()
	a := &Arena{Answers: answers, http: &http.Client{
		Transport: transport, Timeout: callLimit,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
	defer transport.CloseIdleConnections()
	for ctx.Err() == nil {
		method := c.method
		if c.opened {
			method = http.MethodGet
		}
		req, err := http.NewRequestWithContext(
			context.WithoutCancel(ctx), method, s.base(c)+c.path, strings.NewReader(c.body))
		if err != nil {
			answers.add("no call")
			return times
		}
		s.head(c, s.Neighbour, req.Header)
		began := time.Now()
		_, _ = a.send(req) // what comes back is counted
		times = append(times, time.Since(began))
		_ = backoff.Pause(ctx, c.pause, nil) // the loop checks the context
	}
	return times
}

func (s Silent) base(c class) string {
	if c.console {
		return s.Console
	}
	return s.API
}

func (s Silent) head(c class, from Party, h http.Header) {
	h.Set("Content-Type", c.contentType)
	h.Set("Accept", "application/json, text/event-stream")
	switch {
	case c.contentType == form:
		h.Set("Origin", s.Console)
		if c.known {
			h.Set("Cookie", from.Session.Name+"="+from.Session.Value)
		}
	case c.known:
		h.Set("Authorization", "Bearer "+from.Key)
	}
}

// hold sends the head of a call and the beginning of its body. Every other body then grows by a byte a second.
func (s Silent) hold(ctx context.Context, c class, n int, answers *Answers) {
	from := &net.Dialer{LocalAddr: &net.TCPAddr{IP: net.IPv4(127, 0, 0, byte(2+n%sources))}} //nolint:gosec // 2 to 6
	address := strings.TrimPrefix(s.base(c), "http://")
	conn, err := from.DialContext(ctx, "tcp", address)
	if err != nil {
		answers.add("no connection")
		return
	}
	defer func() { _ = conn.Close() }()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	head := http.Header{}
	s.head(c, s.Attackers[n%len(s.Attackers)], head)
	text := fmt.Sprintf("%s %s HTTP/1.1\r\nHost: %s\r\nContent-Length: %d\r\n", c.method, c.path, address, c.length)
	for name, values := range head {
		text += name + ": " + values[0] + "\r\n"
	}
	if _, err := io.WriteString(conn, text+"\r\n"+c.body[:6]); err != nil {
		return
	}
	answered := make(chan struct{})
	go func() {
		defer close(answered)
		start := make([]byte, len("HTTP/1.1 200"))
		if _, err := io.ReadFull(conn, start); err == nil {
			answers.add(string(start[len("HTTP/1.1 "):]))
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case <-answered:
			return
		case <-ctx.Done():
			<-answered
			return
		case <-tick.C:
		}
		if n%2 == 0 {
			if _, err := io.WriteString(conn, "a"); err != nil {
				return
			}
		}
	}
}

// Missed lists the bounds that were exceeded. What visitors are answered is none: they share their places.
func (h Heard) Missed() (missed []string) {
	for _, c := range classes() {
		times, answers := h.Times[c.name], h.Answers[c.name]
		switch {
		case !c.known:
			continue
		case len(times) == 0:
			missed = append(missed, c.name+" was not called")
		case times.Percentile(0.95) > maxKnown:
			missed = append(missed, fmt.Sprintf("%s takes more than %d ms", c.name, maxKnown))
		}
		for _, failed := range []string{"4", "5", "no", "broken"} {
			if got := answers.Select(failed); got != "" {
				missed = append(missed, c.name+" got "+got)
			}
		}
	}
	return missed
}

// Write writes the result for people.
func (h Heard) Write(w io.Writer) error {
	text := fmt.Sprintf("silent bodies at %s; the attackers got %s\n", h.Attacked, h.Attacker.Select(""))
	for _, c := range classes() {
		times, answers := h.Times[c.name], h.Answers[c.name]
		if len(times) == 0 {
			continue
		}
		text += fmt.Sprintf("  %-13s p50 %.0f, p95 %.0f, max %.0f ms: %s\n", c.name, times.Percentile(0.5),
			times.Percentile(0.95), slices.Max(times).Seconds()*1000, answers.Select(""))
	}
	verdict := "kept"
	if missed := h.Missed(); len(missed) > 0 {
		verdict = "MISSED: " + strings.Join(missed, "; ")
	}
	_, err := io.WriteString(w, text+"  "+verdict+"\n")
	if err != nil {
		return fmt.Errorf("write result: %w", err)
	}
	return nil
}
