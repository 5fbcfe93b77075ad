// Package terminal asks the person who runs a command, and shows that person the progress of long work.
package terminal

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
)

// Streams are where a command asks and shows progress: standard input and standard error.
type Streams struct {
	In  io.Reader
	Out io.Writer
}

// ErrNone is returned by Ask if the input is no terminal.
var ErrNone = errors.New("there is no terminal to ask on")

// Ask asks a question whose answer is yes or no, which is the default.
func (s Streams) Ask(question string) (yes bool, err error) {
	if !Is(s.In) {
		return false, ErrNone
	}
	_, _ = fmt.Fprint(s.Out, question+" [y/N] ")
	answer, err := bufio.NewReader(s.In).ReadString('\n')
	if err != nil && answer == "" { // such as the null device
		_, _ = fmt.Fprintln(s.Out)
		return false, ErrNone
	}
	answer = strings.ToLower(strings.TrimSpace(answer))
	return answer == "y" || answer == "yes", nil
}

// Is reports whether an input or an output is a terminal.
func Is(stream any) bool {
	f, ok := stream.(*os.File)
	if !ok {
		return false
	}
	info, err := f.Stat()
	return err == nil && info.Mode()&os.ModeCharDevice != 0
}

// Progress shows the progress of a long command: a bar on a terminal, else a line every lineEvery.
// The bars of libraries have one measure, and show nothing without a terminal. This one shows
// bytes as the share and data points as the rate, also in a log.
type Progress struct {
	out      io.Writer
	terminal bool
	now      func() time.Time
	// began and first are the time and the state at the start of this run, so that the rate leaves
	// earlier runs out.
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

// Progress begins to show the progress of work whose first bytes were done by an earlier run.
func (s Streams) Progress(first int64) *Progress { return newProgress(s.Out, time.Now, first) }

func newProgress(out io.Writer, now func() time.Time, first int64) *Progress {
	return &Progress{out: out, terminal: Is(out), now: now, began: now(), first: first, shown: now()}
}

// Step is one state of the work.
type Step struct {
	// Done and Total are measured in bytes of the input; Total 0 is unknown.
	Done, Total int64
	// Items are those of this run, What is their name.
	Items int
	What  string
	// Plain is the whole text, for work without a meaningful rate.
	Plain string
}

// Show draws the state, at most once per barEvery or lineEvery.
func (p *Progress) Show(s Step) {
	every := lineEvery
	if p.terminal {
		every = barEvery
	}
	now := p.now()
	if now.Sub(p.shown) < every && (s.Total == 0 || s.Done < s.Total) {
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

// End ends the line of the bar.
func (p *Progress) End() {
	if p.terminal && p.wide > 0 {
		_, _ = fmt.Fprintln(p.out)
	}
}

func (p *Progress) text(s Step, took time.Duration) string {
	if s.Plain != "" {
		return s.Plain
	}
	rate := 0.0
	if took > 0 {
		rate = float64(s.Items) / took.Seconds()
	}
	text := fmt.Sprintf("%s %s, %s/s", humanize.Comma(int64(s.Items)), s.What, humanize.Comma(int64(rate)))
	if s.Total <= 0 {
		return text
	}
	share := min(float64(s.Done)/float64(s.Total), 1)
	if p.terminal {
		full := int(share * barWidth)
		bar := strings.Repeat("#", full) + strings.Repeat(".", barWidth-full)
		text = fmt.Sprintf("[%s] %3.0f%% %s", bar, 100*share, text)
	} else {
		text = fmt.Sprintf("%3.0f%% ", 100*share) + text
	}
	if moved := s.Done - p.first; moved > 0 && s.Done < s.Total {
		left := time.Duration(float64(took) * float64(s.Total-s.Done) / float64(moved))
		text += ", " + left.Round(time.Second).String() + " left"
	}
	return text
}
