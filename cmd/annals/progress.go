package main

import (
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// progress shows the progress of a long command: a bar on a terminal, else a line every lineEvery. The
// bars of libraries draw one measure, and nothing where there is no terminal; this one shows bytes as
// the share and data points as the rate, also in a log.
type progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	// began and first are when and where this run began, so that the rate leaves out earlier runs.
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

// isTerminal reports whether the output is a terminal.
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
	// items are those of this run.
	items int
	what  string
	// plain is the whole text, for work without a meaningful rate.
	plain string
}

// show draws the state, at most once per barEvery or lineEvery.
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

// end ends the line of the bar.
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
	text := fmt.Sprintf("%s %s, %s/s", humanize.Comma(int64(s.items)), s.what, humanize.Comma(int64(rate)))
	if s.total <= 0 {
		return text
	}
	share := min(float64(s.done)/float64(s.total), 1)
	if p.terminal {
		full := int(share * barWidth)
		bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
		text = fmt.Sprintf("[%s] %3.0f%% %s", bar, 100*share, text)
	} else {
		text = fmt.Sprintf("%3.0f%% ", 100*share) + text
	}
	if moved := s.done - p.first; moved > 0 && s.done < s.total {
		left := time.Duration(float64(took) * float64(s.total-s.done) / float64(moved))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}
