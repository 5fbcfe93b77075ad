package node

import (
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/annals-project/annals/internal/runtest"
)

// hostileExpression takes practically forever to compare with hostileName.
const hostileExpression = `^(a+)+$`

var hostileName = strings.Repeat("a", 60) + "!"

// An expression that backtracks without end fails the calls of its client, with a clear message,
// and delays nobody else.
func TestFilter_HostileExpression(t *testing.T) {
	c := dial(t, startNode(t, memoryConfig()))
	c.append(hostileName, none, newEvents(1)...)
	_, _, _, err := c.tryRead(filtered(ofAll(), byStream(expression(hostileExpression))))
	if status.Code(err) != codes.InvalidArgument ||
		!strings.Contains(err.Error(), "simplify it") || strings.Contains(err.Error(), "aaa") {
		t.Errorf("a read: %v", err)
	}
	live := c.subscribe(ofAll())
	if got := live.next().GetEvent(); got == nil {
		t.Fatal("another subscription got no event")
	}
	hostile := c.subscribe(filtered(atEnd(ofAll()), byStream(expression(hostileExpression))))
	if hostile.next().GetCaughtUp() == nil || live.next().GetCaughtUp() == nil {
		t.Fatal("the subscriptions do not catch up")
	}
	c.append(hostileName, at(0), newEvents(1)...)
	if _, err := hostile.call.Recv(); status.Code(err) != codes.InvalidArgument {
		t.Errorf("a live subscription: %v", err)
	}
	if got := live.next().GetEvent(); got == nil {
		t.Error("another subscription got no live event")
	}
}

// A call that has ended compares nothing more, even if many slow comparisons are left.
func TestFilter_EndsWithItsCall(t *testing.T) {
	e, err := newPattern("a")
	runtest.Must(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := e.matches(ctx, []byte("a")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
}

// Compiling any expression, and matching with it, takes little time and memory or is refused.
func TestPattern_Bounds(t *testing.T) {
	// A stack that doubles until the time limit allocates some 350 MiB in all, more on a faster
	// machine.
	const most = 2 << 30
	for name, text := range map[string]string{
		"nothing many times":    `(?:){2147483647}`,
		"looking many times":    `(?:(?=a)){2000000000}`,
		"perhaps many times":    `(?:a?){2147483647}b`,
		"loops in loops":        `((a*)*)*b`,
		"counts in counts":      `((((((a?){300}){300}){300}){300}){300})`,
		"either of the same":    `(a|aa)+$`,
		"what it names itself":  `(?<n>a|b\k<n>)+$`,
		"as deep as it can be":  strings.Repeat("(", maxExpression/3) + strings.Repeat(")*", maxExpression/3),
		"a class of everything": strings.Repeat(`[\w\W]`, maxExpression/6),
		"many choices":          strings.Repeat("a|", maxExpression/2-1) + "b",
	} {
		t.Run(name, func(t *testing.T) {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			e, err := newPattern(text)
			runtest.Must(t, err)
			if _, err := e.matches(t.Context(), []byte(hostileName)); err != nil && status.Code(err) != codes.InvalidArgument {
				t.Errorf("got %v", err)
			}
			runtime.ReadMemStats(&after)
			if used := after.TotalAlloc - before.TotalAlloc; used > most {
				t.Errorf("took %d MiB", used>>20)
			}
		})
	}
	c := dial(t, startNode(t, memoryConfig()))
	c.append("s", none, event{id: uuid.New(), typ: "opened", data: "{}"})
	for name, tt := range map[string]struct{ text, want string }{
		"too long":       {strings.Repeat("a", maxExpression+1), "16385 bytes: at most 16384"},
		"none":           {`(`, "missing closing )"},
		"none, and long": {strings.Repeat("a", maxExpression-1) + "(", "missing closing )"},
		"unknown name":   {`\k<n>`, "not understood"},
		"a wrong count":  {`a{2,1}`, "not understood"},
	} {
		_, _, _, err := c.tryRead(filtered(ofAll(), byType(expression(tt.text))))
		if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), tt.want) || len(err.Error()) > 300 {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A panic inside the engine fails only the call.
func TestPattern_Panic(t *testing.T) {
	err := recovered(func() error { panic("index out of range") })
	if err == nil || !strings.Contains(err.Error(), "out of range") {
		t.Errorf("got %v", err)
	}
	e := &pattern{limit: time.Second} // without an engine: any match of it panics
	_, err = e.matches(t.Context(), []byte("a"))
	if status.Code(err) != codes.InvalidArgument || !strings.Contains(err.Error(), "another way") {
		t.Errorf("got %v", err)
	}
}

// FuzzPattern looks for an expression that crashes the process or never ends.
func FuzzPattern(f *testing.F) {
	for _, text := range []string{
		hostileExpression, `^(?!(\$.+$))`, `(?<=a)b|\k<1>`, `[a-z-[aeiou]]`, `(?i)\p{L}{2,}?`, `(?(a)b|c)`, `(?>a*)b`,
	} {
		f.Add(text, "account-1")
	}
	f.Fuzz(func(t *testing.T, text, name string) {
		e, err := newPattern(text)
		if err == nil {
			_, err = e.matches(context.Background(), []byte(name))
		}
		if err != nil && status.Code(err) != codes.InvalidArgument {
			t.Errorf("%q: %v", text, err)
		}
	})
}
