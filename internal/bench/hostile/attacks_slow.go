package hostile

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/hostiletest"
)

// readSlowly makes a call and reads a number of bytes of its response in a second, repeatedly
// until the time is over.
func (a *Arena) readSlowly(ctx context.Context, r hostiletest.Request, perSecond int, lasts time.Duration) error {
	end := time.Now().Add(lasts)
	for time.Now().Before(end) && ctx.Err() == nil {
		if err := a.readOnce(ctx, r, perSecond, end); err != nil {
			if err := backoff.Pause(ctx, probeEvery, nil); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

// readOnce uses a raw connection, so that only its window is read ahead.
func (a *Arena) readOnce(ctx context.Context, r hostiletest.Request, perSecond int, end time.Time) error {
	reader, err := r.Reader()
	if err != nil {
		return err
	}
	text, err := io.ReadAll(reader)
	if err != nil {
		return fmt.Errorf("read body: %w", err)
	}
	conn, err := a.dial(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if tcp, ok := conn.(*net.TCPConn); ok {
		_ = tcp.SetReadBuffer(4096)
	}
	if _, err := fmt.Fprintf(
		conn, "%sContent-Length: %d\r\nConnection: close\r\n\r\n%s", a.head(r.Method, r.Path), len(text), text,
	); err != nil {
		return fmt.Errorf("send: %w", err)
	}
	const ticks = 10
	piece := make([]byte, max(perSecond/ticks, 1))
	tick := time.NewTicker(time.Second / ticks)
	defer tick.Stop()
	for first := true; ; first = false {
		n, err := io.ReadFull(conn, piece)
		if first && n >= len("HTTP/1.1 200") {
			a.Answers.add("slow " + string(piece[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
		}
		if err != nil || time.Now().After(end) {
			return nil
		}
		<-tick.C
	}
}

func (a *Arena) head(method, path string) string {
	return hostiletest.Head(method, "/api/v1"+path, strings.TrimPrefix(a.Base, "http://"), a.Attacker.Key)
}

func (a *Arena) dial(ctx context.Context) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", strings.TrimPrefix(a.Base, "http://"))
	if err != nil {
		a.Answers.add("no connection")
		return nil, fmt.Errorf("connect: %w", err)
	}
	return conn, nil
}

// prepareConnections stores data with a long response.
func prepareConnections(ctx context.Context, a *Arena) error {
	return a.putTraits(ctx, largeTraits, 10)
}

// runConnections holds connections of five kinds. It reopens those that the service closes.
func runConnections(ctx context.Context, a *Arena) error {
	end, unended := time.Now().Add(a.Sizes.Hold), hostiletest.Unended(a.head(http.MethodPost, "/ingest"))
	return each(ctx, a.Sizes.Connections, a.Sizes.Connections, func(ctx context.Context, n int) error {
		for time.Now().Before(end) && ctx.Err() == nil {
			if kind := n % (len(unended) + 1); kind < len(unended) {
				a.trickle(ctx, unended[kind], end)
			} else if a.readOnce(ctx, get(allIdentities), 100, end) != nil { // an answer that is read slowly
				_ = backoff.Pause(ctx, probeEvery, nil) // the loop checks the context
			}
			if backoff.Pause(ctx, probeEvery, nil) != nil {
				return ctx.Err()
			}
		}
		return ctx.Err()
	})
}

// trickle sends a text and then one byte a second until the end or until the service closes. An
// empty text sends nothing.
func (a *Arena) trickle(ctx context.Context, text string, end time.Time) {
	conn, err := a.dial(ctx)
	if err != nil {
		return
	}
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	if _, err := io.WriteString(conn, text); err != nil {
		return
	}
	closed := make(chan struct{})
	go func() {
		defer close(closed)
		_ = conn.SetReadDeadline(end)
		answer, _ := io.ReadAll(io.LimitReader(conn, 4096)) // it ends with the connection
		if len(answer) >= len("HTTP/1.1 200") {
			a.Answers.add("slow " + string(answer[len("HTTP/1.1 "):len("HTTP/1.1 200")]))
		}
	}()
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for time.Now().Before(end) {
		select {
		case <-closed:
			return
		case <-tick.C:
		}
		if text == "" {
			continue
		}
		if _, err := io.WriteString(conn, "a"); err != nil {
			break
		}
	}
	_ = conn.Close()
	<-closed
}

// prepareMetadata stores data points with as much metadata as one may have.
func prepareMetadata(ctx context.Context, a *Arena) error {
	metadata := strings.Repeat("m", 1<<20-100)
	err := a.sends(ctx, a.Sizes.Metadata, 2, func(n int) hostiletest.Point {
		return hostiletest.Point{
			ID: fmt.Sprintf("metadata-%d", n), Content: fmt.Sprintf("Tea number %d.", n), Metadata: metadata,
		}
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

// runMetadata sends 12 recalls at once, first at full speed and then with slow readers.
func runMetadata(ctx context.Context, a *Arena) error {
	const parallel, rounds = 12, 3
	query := hostiletest.Recall("tea", "walk", 0)
	err := each(ctx, parallel*rounds, parallel, func(ctx context.Context, _ int) error {
		a.try(ctx, query)
		return nil
	})
	if err != nil {
		return err
	}
	return each(ctx, parallel, parallel, func(ctx context.Context, _ int) error {
		return a.readSlowly(ctx, query, 256<<10, a.Sizes.Hold/2)
	})
}

// runKeys calls with unknown keys, each once.
func runKeys(ctx context.Context, a *Arena) error {
	return during(ctx, a.Sizes.Hold, 64, func(ctx context.Context, n int) {
		path := "/recall"
		if n%2 == 0 {
			path = "/projects"
		}
		// What comes back is counted.
		_, _ = a.fetch(ctx, hostiletest.UnknownKey(n%2 == 0),
			post(path, map[string]any{"query": "tea", "identity": "walk", "name": "tea"}))
	})
}

// prepareProjects creates many projects with a key each.
func prepareProjects(ctx context.Context, a *Arena) error {
	a.projects = make([]string, a.Sizes.Projects)
	return each(ctx, a.Sizes.Projects, 4, func(ctx context.Context, n int) error {
		made, err := MakeTenant(ctx, a.Base, a.Attacker.Management, fmt.Sprintf("hostile project %d", n))
		a.projects[n] = made.Key
		return err
	})
}

// runProjects writes to all projects at once, so that every page of the feed holds events of many.
func runProjects(ctx context.Context, a *Arena) error {
	const rounds = 5
	err := each(ctx, rounds*len(a.projects), 64, func(ctx context.Context, n int) error {
		// What comes back is counted.
		_, _ = a.fetch(ctx, a.projects[n%len(a.projects)],
			hostiletest.Send(hostiletest.Point{Content: fmt.Sprintf("I like tea number %d.", n)}))
		return ctx.Err()
	})
	if err != nil {
		return err
	}
	return a.awaitSettled(ctx)
}

// MakeTenant creates a project with a key.
func MakeTenant(ctx context.Context, base, management, name string) (Tenant, error) {
	a := NewArena(base, Tenant{Key: management}, Sizes{})
	defer a.Close()
	made := Tenant{Management: management}
	project, err := a.must(ctx, post("/projects", map[string]any{"name": name}))
	if err != nil {
		return made, err
	}
	var named struct{ Slug string }
	if err := json.Unmarshal(project.body, &named); err != nil {
		return made, fmt.Errorf("read project: %w", err)
	}
	key, err := a.must(ctx, post("/projects/"+named.Slug+"/keys", map[string]any{"name": "hostile"}))
	if err != nil {
		return made, err
	}
	var clear struct{ Key string }
	if err := json.Unmarshal(key.body, &clear); err != nil {
		return made, fmt.Errorf("read key: %w", err)
	}
	made.Slug, made.Key = named.Slug, clear.Key
	return made, nil
}

func prepareTokens(ctx context.Context, a *Arena) error { return a.short(ctx, 5*batchSize) }

// runTokens sends recalls of many results with a budget for none.
func runTokens(ctx context.Context, a *Arena) error {
	return during(ctx, a.Sizes.Hold, 32, func(ctx context.Context, n int) {
		a.try(ctx, hostiletest.Recall(document(n, 500), "walk", 1))
	})
}
