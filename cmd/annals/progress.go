package main

import (
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"
)

// progress shows how far a long command is: a bar that is drawn anew on a terminal, else a line now and then.
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	// began and first are when and where the work began, so that a rate leaves out what an earlier run did.
	began time.Time
	first int64
	shown time.Time
	wide  int
}

// How often progress is shown.
const (
	barEvery  = 100 * time.Millisecond
	lineEvery = 5 * time.Second
	barWidth  = 30
)

func newProgress(out io.Writer, now func() time.Time, first int64) *progress {
	return &progress{out: out, terminal: isTerminal(out), now: now, began: now(), first: first, shown: now()}
}

// isTerminal says whether somebody watches the output.
func isTerminal(w io.Writer) bool {
	f, ok := w.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// step is one state of the work.
type step struct {
	// done and total are measured in bytes of the input; total 0 is unknown.
	done, total int64
	// items are counted from where this run began.
	items int
	what  string
	// plain is the whole text, for work whose rate says nothing.
	plain string
}

// show draws the state, unless it was drawn a moment ago.
func (p *progress) show(s step) {
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	now := p.now()
	if now.Sub(p.shown) < every && (s.total == 0 || s.done < s.total) {
		return
	}
	p.shown = now
	text := p.text(s, now.Sub(p.began))
	if !p.terminal {
		_, _ = fmt.Fprintln(p.out, text)
		return
	}
	pad := max(p.wide-len(text), 0)
	p.wide = len(text)
	_, _ = fmt.Fprintf(p.out, "\r%s%s", text, strings.Repeat(" ", pad))
}

// end leaves the line of the bar.
func (p *progress) end() {
	if p.terminal && p.wide > 0 {
		_, _ = fmt.Fprintln(p.out)
	}
}

func (p *progress) text(s step, took time.Duration) string {
	if s.plain != "" {
		return s.plain
	}
	rate := 0.0
	if took > 0 {
		rate = float64(s.items) / took.Seconds()
	}
	text := fmt.Sprintf("%s %s, %s/s", thousands(int64(s.items)), s.what, thousands(int64(rate)))
	if s.total <= 0 {
		return text
	}
	share := min(float64(s.done)/float64(s.total), 1)
	if p.terminal {
		full := int(share * barWidth)
		text = "[" + strings.Repeat("#", full) + strings.Repeat(".", barWidth-full) + "] " + fmt.Sprintf("%3.0f%% ", 100*share) + text
	} else {
		text = fmt.Sprintf("%3.0f%% ", 100*share) + text
	}
	if moved := s.done - p.first; moved > 0 && s.done < s.total {
		left := time.Duration(float64(took) * float64(s.total-s.done) / float64(moved))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}

// thousands writes 1234567 as 1,234,567.
func thousands(n int64) string {
	text := strconv.FormatInt(n, 10)
	for i := len(text) - 3; i > 0 && text[i-1] != '-'; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return text
}

// plural writes a number with its noun.
func plural(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return thousands(int64(n)) + " " + many
}
