package terminal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"
)

// Neither a pipe nor the null device, which is a device of characters as a terminal is, can answer.
func TestAsk_WithoutTerminal(t *testing.T) {
	null, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = null.Close() }()
	for name, in := range map[string]io.Reader{"a pipe": strings.NewReader("y\n"), "the null device": null} {
		var out bytes.Buffer
		if yes, err := (Streams{In: in, Out: &out}).Ask("Go on?"); yes || !errors.Is(err, ErrNone) {
			t.Errorf("%s: %v, %v", name, yes, err)
		}
		if asked := out.String(); asked != "" && !strings.HasSuffix(asked, "\n") {
			t.Errorf("%s: what follows would be on the line of the question: %q", name, asked)
		}
	}
}

func TestProgress_Terminal(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := newProgress(&out, func() time.Time { return now }, 0)
	p.terminal = true
	for i := 1; i <= 4; i++ {
		now = now.Add(time.Second)
		p.Show(Step{Done: int64(i) * 25, Total: 100, Items: i * 1000, What: "data points"})
	}
	p.End()
	got := out.String()
	for _, want := range []string{
		"\r[#######.......................]  25% 1,000 data points, 1,000/s, 3s left",
		"\r[##############################] 100% 4,000 data points, 1,000/s",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("lacks %q: %q", want, got)
		}
	}
	if strings.Count(got, "\n") != 1 || !strings.HasSuffix(got, "\n") {
		t.Errorf("more than one line: %q", got)
	}
}

func TestProgress_WithoutTerminal(t *testing.T) {
	now := time.Unix(0, 0)
	var out bytes.Buffer
	p := newProgress(&out, func() time.Time { return now }, 50)
	for i := range 11 {
		now = now.Add(time.Second)
		p.Show(Step{Done: 50 + int64(i), Total: 100, Items: i, What: "data points"})
	}
	want := " 54% 4 data points, 0/s, 58s left\n 59% 9 data points, 0/s, 46s left\n"
	if got := out.String(); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
