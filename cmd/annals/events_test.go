package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/cmd/annals/internal/operatorapi"
	"github.com/annals-project/annals/cmd/annals/internal/operatorapi/operatortest"
	"github.com/annals-project/annals/cmd/annals/internal/server"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/esdb"
	"github.com/annals-project/annals/eventstore/inspect"
	"github.com/annals-project/annals/internal/runtest"
)

// eventSources starts a node, and a server's socket over it: two ways to one log.
func eventSources(t *testing.T) (store *esdb.Store, ways map[string][]string) {
	t.Helper()
	dir := t.TempDir()
	n := startNode(t, "--data-dir", dir, "--insecure")
	store = openStore(t, n.address)
	operatortest.Serve(t, dir, operatorapi.EventRoutes(inspect.Log{Store: store})...)
	return store, map[string][]string{"through the server": {"--data-dir", dir}, "directly": {"--eventstore", n.address}}
}

func TestEventsRead_Stream(t *testing.T) {
	store, ways := eventSources(t)
	appendEvents(t, store, "account-1", 0, `{"n": 1}`, `{"n":2}`, "no JSON\x1b[2J", "{\"text\":\"a\u009bb <&> \\u001b\"}")
	for way, flags := range ways {
		t.Run(way, func(t *testing.T) {
			read := func(args ...string) outcome {
				t.Helper()
				got := annals(t.Context(), nil, "", append(append([]string{"events", "read"}, flags...), args...)...)
				if got.code != exitOK || got.stderr != "" {
					t.Fatalf("%v: %+v", args, got)
				}
				return got
			}
			lines := strings.Split(strings.TrimSuffix(read("account-1").stdout, "\n"), "\n")
			want := []string{
				`2 account-1@0 tested.v1 TIME 21B {"n":1}`,
				`3 account-1@1 tested.v2 TIME 20B {"n":2}`,
				`4 account-1@2 tested.v3 TIME 24B (11 bytes that are no JSON)`,
				`5 account-1@3 tested.v4 TIME 39B {"text":"a\u009bb <&> \u001b"}`,
			}
			if diff := cmp.Diff(want, withoutTimes(t, lines)); diff != "" {
				t.Error(diff)
			}
			var page struct {
				Stream string
				Events []inspect.Event
			}
			got := read("account-1", "--backwards", "--from=2", "--limit=2", "--json")
			runtest.Must(t, json.Unmarshal([]byte(got.stdout), &page))
			e := page.Events
			if page.Stream != "account-1" || len(e) != 2 || e[0].Revision != 2 ||
				string(e[0].Raw) != "no JSON\x1b[2J" || e[0].Data != nil ||
				e[1].Position != 3 || !strings.Contains(string(e[1].Data), `"n"`) ||
				!strings.Contains(string(e[1].Metadata), `"test"`) {
				t.Errorf("got %+v", page)
			}
			if got := read("account-1", "--from=3"); strings.Count(got.stdout, "\n") != 1 {
				t.Errorf("from 3: %q", got.stdout)
			}
			if got := read("nothing"); got.stdout != "the stream has no such events\n" {
				t.Errorf("got %q", got.stdout)
			}
			if got := read("nothing", "--json"); strings.Join(strings.Fields(got.stdout), "") != `{"events":[],"stream":"nothing"}` {
				t.Errorf("got %q", got.stdout)
			}
		})
	}
}

func TestEventsRead_LongStream(t *testing.T) {
	store, ways := eventSources(t)
	appendEvents(t, store, "long", 0, slices.Repeat([]string{"{}"}, 300)...)
	for way, flags := range ways {
		for want, more := range map[int][]string{
			100: nil, 300: {"--limit=0"}, 150: {"--limit=150", "--backwards"}, 41: {"--limit=0", "--backwards", "--from=40"},
		} {
			got := annals(t.Context(), nil, "", append(append([]string{"events", "read", "long"}, flags...), more...)...)
			if n := strings.Count(got.stdout, "\n"); n != want || got.code != exitOK {
				t.Errorf("%s %v: %d lines, %s", way, more, n, got.stderr)
			}
		}
	}
}

func TestEventsRead_Errors(t *testing.T) {
	store, ways := eventSources(t)
	appendEvents(t, store, "gone", 0, "{}")
	runtest.Must(t, errorOf(store.Tombstone(t.Context(), "gone", 0)))
	for way, flags := range ways {
		got := annals(t.Context(), nil, "", append([]string{"events", "read", "gone", "--json"}, flags...)...)
		if got.code != exitFailed || got.stdout != "" || got.stderr != "annals: stream gone was deleted\n" {
			t.Errorf("%s: %+v", way, got)
		}
	}
	for want, args := range map[string][]string{
		"no server is running on data folder":         {"read", "s", "--data-dir", t.TempDir()},
		"is neither":                                  {"read", "s", "--eventstore", "http://127.0.0.1"},
		"--limit and --from are not below 0":          {"read", "s", "--limit=-1"},
		`--from is "yesterday": want start, end`:      {"tail", "--from=yesterday"},
		"annals: no server is running on data folder": {"tail", "--data-dir", t.TempDir()},
	} {
		annals(t.Context(), nil, "", append([]string{"events"}, args...)...).fails(t, exitFailed, want)
	}
}

// tailing is a running "annals events tail".
type tailing struct {
	t     *testing.T
	lines *bufio.Scanner
	stop  context.CancelFunc
	ended chan int
}

func tail(t *testing.T, args ...string) tailing {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	out, in := io.Pipe()
	tl := tailing{t, bufio.NewScanner(out), cancel, make(chan int, 1)}
	go func() {
		noVariable := func(string) string { return "" }
		code := run(ctx, append([]string{"events", "tail"}, args...), noVariable, strings.NewReader(""), in, t.Output())
		_ = in.Close()
		tl.ended <- code
	}()
	return tl
}

func (tl tailing) next() string {
	tl.t.Helper()
	if !tl.lines.Scan() {
		tl.t.Fatal("the tail ended")
	}
	return tl.lines.Text()
}

// end interrupts the tail, which is how it is meant to end.
func (tl tailing) end() {
	tl.t.Helper()
	tl.stop()
	for tl.lines.Scan() { // what it was about to write
	}
	if code := <-tl.ended; code != exitOK {
		tl.t.Errorf("exit code %d", code)
	}
}

func TestEventsTail_FollowsTheLog(t *testing.T) {
	store, ways := eventSources(t)
	appendEvents(t, store, "a", 0, `{"n":1}`, `{"n":2}`)
	revision := map[string]int{"a": 2, "b": 0}
	add := func(stream string) {
		t.Helper()
		appendEvents(t, store, stream, revision[stream], `{"live":true}`)
		revision[stream]++
	}
	for way, flags := range ways {
		t.Run(way, func(t *testing.T) {
			all := tail(t, append(flags, "--from=start")...)
			unread := tail(t, append(flags, "--from=2", "--stream=a", "--json")...)
			typed := tail(t, append(flags, "--from=start", "--type=tested.v2")...)
			all.next() // the node's own first event
			if got := all.next(); !strings.HasPrefix(got, "2 a@0 tested.v1 ") || !strings.HasSuffix(got, ` {"n":1}`) {
				t.Errorf("first line %q", got)
			}
			all.next()
			add("b")
			add("a")
			var got inspect.Event
			for i := range 2 {
				err := json.Unmarshal([]byte(unread.next()), &got)
				if err != nil || got.Stream != "a" || got.Position <= uint64(i+1) {
					t.Errorf("got %+v, %v", got, err)
				}
			}
			if got := typed.next(); !strings.HasPrefix(got, "3 a@1 tested.v2 ") {
				t.Errorf("by type %q", got)
			}
			for _, tl := range []tailing{all, unread, typed} {
				tl.end()
			}
		})
	}
}

// A tail that begins at the end shows nothing of what was there before.
func TestEventsTail_BeginsAtTheEnd(t *testing.T) {
	store, ways := eventSources(t)
	appendEvents(t, store, "before", 0, "{}", "{}")
	for way, flags := range ways {
		t.Run(way, func(t *testing.T) {
			source := LogSource{EventStore: server.Embedded}
			if flags[0] == "--data-dir" {
				source.DataDir = flags[1]
			} else {
				source.EventStore = flags[1]
			}
			from, done, err := source.open()
			runtest.Must(t, err)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			opened, events := make(chan struct{}), make(chan inspect.Event)
			ended := make(chan error, 1)
			go func() {
				ended <- from.Tail(ctx, inspect.Tail{FromEnd: true}, func() { close(opened) }, func(e inspect.Event) error {
					events <- e
					return nil
				})
			}()
			<-opened
			appendEvents(t, store, "after "+way, 0, "{}")
			if e := <-events; e.Stream != "after "+way || e.Revision != 0 {
				t.Errorf("got %+v", e)
			}
			cancel()
			if err := <-ended; err == nil {
				t.Error("the tail ended without a reason")
			}
			runtest.Must(t, done())
		})
	}
}

// brokenLog fails as a store does that goes away.
type brokenLog struct{ eventstore.Store }

func (brokenLog) Read(
	context.Context, string, eventstore.Revision, eventstore.Direction, int,
) ([]eventstore.Recorded, error) {
	return nil, errors.New("the disk is gone")
}

func (brokenLog) Head(context.Context) (eventstore.Position, error) {
	return 0, errors.New("the disk is gone")
}

func TestEvents_LogFailed(t *testing.T) {
	dir := t.TempDir()
	operatortest.Serve(t, dir, operatorapi.EventRoutes(inspect.Log{Store: brokenLog{}})...)
	for _, args := range [][]string{{"read", "s"}, {"tail"}} {
		got := annals(t.Context(), nil, "", append([]string{"events"}, append(args, "--data-dir", dir)...)...)
		if got.code != exitFailed || got.stderr != "annals: the disk is gone\n" {
			t.Errorf("%v: %+v", args, got)
		}
	}
}

// withoutTimes checks the time on each line and puts TIME in its place.
func withoutTimes(t *testing.T, lines []string) []string {
	t.Helper()
	out := make([]string, len(lines))
	for i, line := range lines {
		fields := strings.SplitN(line, " ", 5)
		if len(fields) != 5 {
			t.Fatalf("line %q", line)
		}
		if at, err := time.Parse(time.RFC3339Nano, fields[3]); err != nil || time.Since(at) > time.Hour {
			t.Errorf("time %q, %v", fields[3], err)
		}
		fields[3] = "TIME"
		out[i] = strings.Join(fields, " ")
	}
	return out
}
