package load

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/bench/score"
)

// identity is the identity of the load.
const identity = "load"

// shortWords is the length of a short text: about 120 bytes.
const shortWords = 20

// Times are durations of one kind of call.
type Times []time.Duration

// Percentile returns a percentile in milliseconds. It sorts the times.
func (t Times) Percentile(p float64) float64 {
	slices.Sort(t)
	return float64(score.Percentile(t, p).Microseconds()) / 1000
}

// Rate is the result of a load.
type Rate struct {
	PerSecond float64
	Lasted    time.Duration
	Times     Times
}

// Single sends data points one after the other from a number of clients for a while, at least one
// each. A send counts once it is acknowledged.
func Single(ctx context.Context, to *client.Client, clients int, lasts time.Duration, run string) (Rate, error) {
	times := make([]Times, clients)
	texts := make([]*Texts, clients)
	for c := range texts {
		texts[c] = NewTexts(uint64(c) + 100)
	}
	began := time.Now()
	end := began.Add(lasts)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				start := time.Now()
				_, err := to.Ingest(ctx, client.DataPoint{
					ID: fmt.Sprintf("%s/single/%d/%d", run, c, n), Content: texts[c].Text(shortWords), Identity: identity,
				})
				if err != nil {
					return fmt.Errorf("single send: %w", err)
				}
				times[c] = append(times[c], time.Since(start))
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, err
	}
	all, lasted := slices.Concat(times...), time.Since(began)
	return Rate{float64(len(all)) / lasted.Seconds(), lasted, all}, nil
}

// Batches sends count batches of size short texts, parallel at a time. The rate counts items. A
// caller can wait for the sends with the receipt of the last batch.
func Batches(
	ctx context.Context, to *client.Client, count, size, words, parallel int, run string,
) (Rate, client.BatchReceipt, error) {
	var mu sync.Mutex
	var times Times
	var last client.BatchReceipt
	var next atomic.Int64
	began := time.Now()
	group, ctx := errgroup.WithContext(ctx)
	for w := range parallel {
		group.Go(func() error {
			texts := NewTexts(uint64(w) + 10_000)
			for {
				n := int(next.Add(1)) - 1
				if n >= count {
					return nil
				}
				items := batch(texts, n, size, words, run)
				start := time.Now()
				receipt, err := to.IngestBatch(ctx, client.Batch{Items: items})
				if err != nil {
					return fmt.Errorf("batch: %w", err)
				}
				mu.Lock()
				times, last = append(times, time.Since(start)), *receipt
				mu.Unlock()
			}
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, client.BatchReceipt{}, err
	}
	lasted := time.Since(began)
	return Rate{float64(count*size) / lasted.Seconds(), lasted, times}, last, nil
}

// epoch is the time of the first text of a batch. Each next one occurred a minute later.
var epoch = time.Date(2024, 1, 1, 0, 0, 0, 0, time.UTC)

func batch(texts *Texts, number, size, words int, run string) []client.DataPoint {
	items := make([]client.DataPoint, size)
	for i := range items {
		items[i] = client.DataPoint{
			ID: fmt.Sprintf("%s/batch/%d/%d", run, number, i), Content: texts.Text(words), Identity: identity,
			Timestamp: epoch.Add(time.Duration(number*size+i) * time.Minute).Format(time.RFC3339),
		}
	}
	return items
}

// WarmRecalls is how many queries Recalls makes before those that it measures.
const WarmRecalls = 20

// Recalls sends count queries one after the other, each within a window of time, after WarmRecalls.
func Recalls(ctx context.Context, to *client.Client, count int, from, until time.Time) (Times, error) {
	texts := NewTexts(7)
	var times Times
	var found int
	for i := range WarmRecalls + count {
		start := time.Now()
		results, err := ask(ctx, to, texts, from, until)
		if err != nil {
			return nil, err
		}
		if i >= WarmRecalls {
			times = append(times, time.Since(start))
			found += results
		}
	}
	if found == 0 {
		return nil, errNothingFound
	}
	return times, nil
}

var errNothingFound = errors.New("no recall found anything: nothing was measured")

// ask makes the next query of texts within a window of time, and counts its results.
func ask(ctx context.Context, to *client.Client, texts *Texts, from, until time.Time) (results int, err error) {
	page, err := to.Recall(ctx, client.RecallRequest{
		Query: texts.Query(), Identity: identity, Limit: 100,
		OccurredFrom: from.Format(time.RFC3339), OccurredTo: until.Format(time.RFC3339),
	})
	if err != nil {
		return 0, fmt.Errorf("recall: %w", err)
	}
	return len(page.Results), nil
}

// RecallsBy makes the queries of Recalls from a number of clients for a while, each one after the other.
func RecallsBy(
	ctx context.Context, to *client.Client, clients int, lasts time.Duration, from, until time.Time,
) (Rate, error) {
	times, found := make([]Times, clients), make([]int, clients)
	began := time.Now()
	end := began.Add(lasts)
	group, ctx := errgroup.WithContext(ctx)
	for c := range clients {
		group.Go(func() error {
			texts := NewTexts(uint64(c) + 7)
			for n := 0; n == 0 || time.Now().Before(end); n++ {
				start := time.Now()
				results, err := ask(ctx, to, texts, from, until)
				if err != nil {
					return err
				}
				times[c], found[c] = append(times[c], time.Since(start)), found[c]+results
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return Rate{}, err
	}
	if slices.Max(found) == 0 {
		return Rate{}, errNothingFound
	}
	all, lasted := slices.Concat(times...), time.Since(began)
	return Rate{float64(len(all)) / lasted.Seconds(), lasted, all}, nil
}

// Window returns the middle half of the time of the texts of Batches.
func Window(texts int) (from, until time.Time) {
	span := time.Duration(texts) * time.Minute
	return epoch.Add(span / 4), epoch.Add(3 * span / 4)
}

// Bare are the speeds of the parts alone, from the output of the Go benchmarks that ran just
// before.
type Bare struct {
	// Appends is how many appends a second the event store accepts from 32 callers.
	Appends float64
	// Query is how long the index takes for one query over as many passages, in milliseconds.
	Query float64
}

// The benchmarks that are read, with the unit that counts.
var bareLines = []struct {
	name *regexp.Regexp
	unit string
	set  func(*Bare, float64)
}{
	{regexp.MustCompile(`^BenchmarkAppend/callers=32(-\d+)?$`), "calls/s", func(b *Bare, v float64) { b.Appends = v }},
	{regexp.MustCompile(`^BenchmarkEngineQuery(-\d+)?$`), "ns/op", func(b *Bare, v float64) { b.Query = v / 1e6 }},
}

// ReadBare reads the output of go test -bench. Missing values stay 0.
func ReadBare(r io.Reader) (Bare, error) {
	var b Bare
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		for _, want := range bareLines {
			if len(fields) < 4 || !want.name.MatchString(fields[0]) {
				continue
			}
			for i := 3; i < len(fields); i += 2 {
				if fields[i] != want.unit {
					continue
				}
				v, err := strconv.ParseFloat(fields[i-1], 64)
				if err != nil {
					return Bare{}, fmt.Errorf("benchmark %s: %w", fields[0], err)
				}
				want.set(&b, v)
			}
		}
	}
	if err := lines.Err(); err != nil {
		return Bare{}, fmt.Errorf("read benchmarks: %w", err)
	}
	return b, nil
}

// The sizes of the measurement of how soon a send is recalled.
const (
	// senders is how many clients make the load.
	senders = 16
	// probers is how many sends are awaited at once, and probeEvery the pause between two recalls for
	// one.
	probers    = 4
	probeEvery = 10 * time.Millisecond
	// probeLimit is how long a send is awaited.
	probeLimit = 30 * time.Second
)

// Searchable makes perSecond single sends for a while, and measures how long after its receipt a
// send is first recalled. probes bounds how many are measured.
func Searchable(
	ctx context.Context, to *client.Client, perSecond float64, lasts time.Duration, probes int, run string,
) (Times, error) {
	load, stop := context.WithTimeout(ctx, lasts+probeLimit)
	defer stop()
	over := make(chan struct{})
	group, load := errgroup.WithContext(load)
	for s := range senders {
		group.Go(func() error { return steady(load, to, perSecond/senders, over, fmt.Sprintf("%s/steady/%d", run, s)) })
	}
	end := time.Now().Add(lasts)
	var mu sync.Mutex
	var times Times
	var waiting sync.WaitGroup
	for p := range probers {
		waiting.Add(1)
		group.Go(func() error {
			defer waiting.Done()
			texts := NewTexts(uint64(p) + 500)
			for n := 0; n < probes/probers && time.Now().Before(end); n++ {
				took, err := probe(load, to, texts, fmt.Sprintf("%s/probe/%d/%d", run, p, n))
				if err != nil {
					return err
				}
				mu.Lock()
				times = append(times, took)
				mu.Unlock()
			}
			return nil
		})
	}
	group.Go(func() error { waiting.Wait(); close(over); return nil })
	if err := group.Wait(); err != nil {
		return nil, err
	}
	return times, nil
}

// steady sends at a rate until over is closed. A slower server slows it down.
func steady(ctx context.Context, to *client.Client, perSecond float64, over <-chan struct{}, run string) error {
	texts := NewTexts(900)
	tick := time.NewTicker(time.Duration(float64(time.Second) / max(perSecond, 0.1)))
	defer tick.Stop()
	for n := 0; ; n++ {
		select {
		case <-ctx.Done():
			return fmt.Errorf("steady load: %w", ctx.Err())
		case <-over:
			return nil
		case <-tick.C:
		}
		p := client.DataPoint{ID: fmt.Sprintf("%s/%d", run, n), Content: texts.Text(shortWords), Identity: identity}
		if _, err := to.Ingest(ctx, p); err != nil {
			return fmt.Errorf("steady load: %w", err)
		}
	}
}

// probe sends a text with a unique word, and recalls the word until it finds the text.
func probe(ctx context.Context, to *client.Client, texts *Texts, id string) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	word := texts.Rare()
	p := client.DataPoint{ID: id, Content: texts.Text(shortWords) + " " + word, Identity: identity}
	if _, err := to.Ingest(ctx, p); err != nil {
		return 0, fmt.Errorf("probe: %w", err)
	}
	accepted := time.Now()
	tick := time.NewTicker(probeEvery)
	defer tick.Stop()
	for {
		page, err := to.Recall(ctx, client.RecallRequest{Query: word, Identity: identity, Limit: 1})
		if err != nil {
			return 0, fmt.Errorf("probe: %w", err)
		}
		if len(page.Results) > 0 {
			return time.Since(accepted), nil
		}
		select {
		case <-ctx.Done():
			return 0, fmt.Errorf("what was accepted was not recalled within %v: %w", probeLimit, ctx.Err())
		case <-tick.C:
		}
	}
}

// Row is one measured value, with the budget of the design.
type Row struct {
	What  string  `json:"what"`
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
	// Must is the bound, 0 without one. With AtLeast the value must not be below it, else not above.
	Must    float64 `json:"must,omitempty"`
	AtLeast bool    `json:"atLeast,omitempty"`
	Aim     float64 `json:"aim,omitempty"`
	// Bare is the value of the part alone in the same run, and BareOf names that part; 0 is unknown.
	Bare   float64 `json:"bare,omitempty"`
	BareOf string  `json:"bareOf,omitempty"`
}

// Met reports whether the value meets the bound.
func (r Row) Met() bool {
	switch {
	case r.Must == 0:
		return true
	case r.AtLeast:
		return r.Value >= r.Must
	default:
		return r.Value < r.Must
	}
}

// Ratio returns the value as a multiple of Bare; 0 is unknown.
func (r Row) Ratio() float64 {
	if r.Bare == 0 {
		return 0
	}
	return r.Value / r.Bare
}

// Table writes rows for people.
func Table(w io.Writer, rows []Row) error {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, _ = fmt.Fprintln(t, "WHAT\tMEASURED\tMUST\tAIM\tRATIO\t") // Flush returns the error
	for _, r := range rows {
		must, aim, ratio, mark := "", "", "", ""
		if r.Must != 0 {
			must = side(r) + number(r.Must)
			if !r.Met() {
				mark = "missed"
			}
		}
		if r.Aim != 0 {
			aim = side(r) + number(r.Aim)
		}
		if x := r.Ratio(); x != 0 {
			ratio = fmt.Sprintf("%.2f x %s (%s)", x, r.BareOf, number(r.Bare))
		}
		_, _ = fmt.Fprintf(t, "%s\t%s %s\t%s\t%s\t%s\t%s\n", r.What, number(r.Value), r.Unit, must, aim, ratio, mark)
	}
	if err := t.Flush(); err != nil {
		return fmt.Errorf("write table: %w", err)
	}
	return nil
}

func side(r Row) string {
	if r.AtLeast {
		return ">= "
	}
	return "< "
}

func number(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.1f", v)
}

// Missed returns an error that names the rows that miss their bound, nil if none does.
func Missed(rows []Row) error {
	var errs []error
	for _, r := range rows {
		if !r.Met() {
			errs = append(errs, fmt.Errorf("%s is %.1f %s", r.What, r.Value, r.Unit))
		}
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("bounds are missed: %w", err)
	}
	return nil
}

// statusCallers is how many calls run at once.
const statusCallers = 8

// Unfinished reads the status of each of the sends, by project, and counts those that are not
// completed.
func Unfinished(ctx context.Context, to []*client.Client, sent [][]string) (asked, unfinished int, err error) {
	type send struct {
		to *client.Client
		id string
	}
	var all []send
	for i, ids := range sent {
		for _, id := range ids {
			all = append(all, send{to[i], id})
		}
	}
	var next, open atomic.Int64
	group, ctx := errgroup.WithContext(ctx)
	for range statusCallers {
		group.Go(func() error {
			for n := next.Add(1) - 1; n < int64(len(all)); n = next.Add(1) - 1 {
				status, err := all[n].to.GetIngestion(ctx, all[n].id)
				if err != nil {
					return fmt.Errorf("read status of send %s: %w", all[n].id, err)
				}
				if status.Status != "completed" {
					open.Add(1)
				}
			}
			return nil
		})
	}
	err = group.Wait()
	return len(all), int(open.Load()), err
}
