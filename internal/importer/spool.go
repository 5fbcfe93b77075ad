package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/fsx"
)

// Spool holds the data points of an estimate on the disk, a line each, until they are sent. Its file has no name, so
// nothing is left of it when the process ends in whatever way.
type Spool struct {
	file    *os.File
	size    int64
	batches []planned
}

// planned is a batch of an estimate.
type planned struct {
	key           string
	from          time.Time // the zero time if its data points have none
	points        int
	bytes         int64
	offset, limit int64
}

// spooled is a line of a spool: an item of a batch, and the file that it is from.
type spooled struct {
	Path string          `json:"path,omitempty"`
	Item json.RawMessage `json:"item"`
}

// NewSpool creates a spool in the folder for temporary files. The caller must close it.
func NewSpool() (*Spool, error) {
	file, err := fsx.Unnamed()
	if err != nil {
		return nil, err
	}
	return &Spool{file: file}, nil
}

// Close frees the disk.
func (s *Spool) Close() error { return s.file.Close() }

// Estimator estimates files. *client.Client is one.
type Estimator interface {
	EstimateFull(
		ctx context.Context, in client.EstimateRequest, begin func() error, point func(client.EstimatedPoint) error,
	) (*client.Estimate, error)
}

// Add estimates files and adds the chosen data points in the batches of the estimate.
func (s *Spool) Add(
	ctx context.Context, from Estimator, in client.EstimateRequest, choice Choice,
) (*client.Estimate, error) {
	out := bufio.NewWriterSize(s.file, 1<<20)
	var ends []int64
	end, some := s.size, choice.begin()
	begin := func() error {
		out.Reset(s.file)
		some = choice.begin()
		ends, end = ends[:0], s.size
		if err := s.file.Truncate(s.size); err != nil {
			return err
		}
		_, err := s.file.Seek(s.size, io.SeekStart)
		return err
	}
	e, err := from.EstimateFull(ctx, in, begin, func(p client.EstimatedPoint) error {
		if !choice.isAll() {
			if takes, err := some.add(p); err != nil || !takes {
				return err
			}
		}
		line, err := spoolLine(p)
		if err != nil {
			return err
		}
		end += int64(len(line))
		ends = append(ends, end)
		_, err = out.Write(line)
		return err
	})
	if err != nil {
		return nil, err
	}
	if err := out.Flush(); err != nil {
		return nil, fmt.Errorf("write data points: %w", err)
	}
	if !choice.isAll() {
		if err := some.apply(ctx, e); err != nil {
			return nil, err
		}
	}
	return e, s.cut(e, ends, end)
}

// cut adds the batches of an estimate, whose data points end at some offsets.
func (s *Spool) cut(e *client.Estimate, ends []int64, end int64) error {
	place, offset := 0, s.size
	for _, b := range e.Batches {
		if place += b.Points; place > len(ends) || b.Points < 1 || b.IdempotencyKey == "" {
			return fmt.Errorf("the estimate has %d data points, and its batches have more", len(ends))
		}
		p := planned{key: b.IdempotencyKey, points: b.Points, bytes: b.Bytes, offset: offset, limit: ends[place-1]}
		if b.From != nil {
			p.from = *b.From
		}
		s.batches, offset = append(s.batches, p), p.limit
	}
	if place != len(ends) {
		return fmt.Errorf("the estimate has %d data points, and %d in its batches", len(ends), place)
	}
	s.size = end
	return nil
}

// inOrder returns the batches by time, those without one last. The batches of one estimate keep their order.
func (s *Spool) inOrder() []planned {
	list := slices.Clone(s.batches)
	slices.SortStableFunc(list, func(a, b planned) int {
		if a.from.IsZero() != b.from.IsZero() {
			return cmp.Compare(b.from.Unix(), a.from.Unix()) // the zero time is before all others
		}
		return a.from.Compare(b.from)
	})
	return list
}

// read returns the data points of a batch.
func (s *Spool) read(b planned) ([]spooled, error) {
	text := make([]byte, b.limit-b.offset)
	if _, err := s.file.ReadAt(text, b.offset); err != nil {
		return nil, fmt.Errorf("read data points: %w", err)
	}
	items := make([]spooled, 0, b.points)
	for line := range bytes.Lines(text) {
		var item spooled
		if err := json.Unmarshal(line, &item); err != nil {
			return nil, fmt.Errorf("read data points: %w", err)
		}
		items = append(items, item)
	}
	return items, nil
}

// spoolLine makes the item of a batch from a data point of an estimate.
func spoolLine(p client.EstimatedPoint) ([]byte, error) {
	item := struct {
		Content   *string         `json:"content"`
		ID        string          `json:"id"`
		Label     *string         `json:"label,omitempty"`
		Timestamp *time.Time      `json:"timestamp,omitempty"`
		Metadata  json.RawMessage `json:"metadata,omitempty"`
		Audience  *string         `json:"audience,omitempty"`
		Identity  *string         `json:"identity,omitempty"`
	}{p.Content, p.ID, p.Label, p.Timestamp, p.Metadata, p.Audience, p.Identity}
	var line spooled
	if p.Path != nil {
		line.Path = *p.Path
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	err := enc.Encode(item)
	if err == nil {
		line.Item = bytes.TrimSuffix(bytes.Clone(b.Bytes()), []byte("\n"))
		b.Reset()
		err = enc.Encode(line)
	}
	if err != nil {
		return nil, fmt.Errorf("encode data point: %w", err)
	}
	return b.Bytes(), nil
}

// Choice is which data points of files are imported. The zero value chooses all.
type Choice struct {
	// Since leaves out what is before it, and what has no time; the zero time leaves out nothing.
	Since time.Time
	// Kinds are the kinds of files whose data points are chosen, all if there is none.
	Kinds []string
}

func (c Choice) isAll() bool { return c.Since.IsZero() && len(c.Kinds) == 0 }

func (c Choice) takes(p client.EstimatedPoint) bool {
	if len(c.Kinds) > 0 && (p.Kind == nil || !slices.Contains(c.Kinds, *p.Kind)) {
		return false
	}
	return c.Since.IsZero() || p.Timestamp != nil && !p.Timestamp.Before(c.Since)
}

// chosen is the data points of an estimate that were chosen.
type chosen struct {
	choice Choice
	plan   *estimate.Plan
	files  map[string]*chosenFile
}

type chosenFile struct {
	points, left  int
	bytes, tenths int64
	// untimed counts the chosen ones without a time.
	untimed int
}

func (c Choice) begin() *chosen {
	return &chosen{c, estimate.NewPlan(time.UTC, 0), map[string]*chosenFile{}}
}

// add reports whether a data point is chosen, and counts it.
func (c *chosen) add(p client.EstimatedPoint) (bool, error) {
	path := ""
	if p.Path != nil {
		path = *p.Path
	}
	f := c.files[path]
	if f == nil {
		f = &chosenFile{}
		c.files[path] = f
	}
	if !c.choice.takes(p) {
		f.left++
		return false, nil
	}
	f.points++
	f.bytes += int64(p.Bytes)
	f.tenths += metering.IngestTenths(int64(p.Bytes))
	point := estimate.Point{ID: p.ID, Metadata: p.Metadata}
	for to, from := range map[*string]*string{
		&point.Content: p.Content, &point.Label: p.Label, &point.Identity: p.Identity, &point.Audience: p.Audience,
	} {
		if from != nil {
			*to = *from
		}
	}
	if p.Timestamp == nil {
		f.untimed++
	} else {
		point.At = *p.Timestamp
	}
	return true, c.plan.AddItem(point)
}

// apply makes an estimate that of the chosen data points: in batches of their own, with their cost.
func (c *chosen) apply(ctx context.Context, e *client.Estimate) error {
	var room estimate.Room
	for _, left := range []*json.Number{e.Balance.Left, e.Balance.ProjectCapLeft} {
		if left == nil {
			continue
		}
		credits, err := left.Float64()
		if err != nil {
			return fmt.Errorf("read the balance: %w", err)
		}
		if tenths := int64(math.Round(10 * credits)); room.CreditTenths == nil || tenths < *room.CreditTenths {
			room.CreditTenths = &tenths
		}
	}
	made, err := c.plan.Estimate(ctx, room)
	if err != nil {
		return err
	}
	credits := func(tenths int64) *json.Number {
		if !e.Metered {
			return nil
		}
		n := json.Number(strings.TrimSuffix(fmt.Sprintf("%d.%d", tenths/10, tenths%10), ".0"))
		return &n
	}
	e.DataPoints, e.Bytes, e.Credits = made.Points, made.Bytes, credits(made.CreditTenths)
	e.Fits, e.FitsFirst, e.Batches = made.Fits() && !e.Balance.IngestionCapReached, made.FitsFirst, nil
	for b := range made.Batches() {
		batch := client.EstimatedBatch{
			Index: len(e.Batches), Points: b.Points, Bytes: b.Bytes, Credits: credits(b.CreditTenths),
			IdempotencyKey: b.IdempotencyKey,
		}
		if !b.From.IsZero() {
			batch.From, batch.To = &b.From, &b.To
		}
		e.Batches = append(e.Batches, batch)
	}
	for i := range e.Files {
		c.applyTo(&e.Files[i], credits)
	}
	return nil
}

// applyTo makes the row of a file that of its chosen data points.
func (c *chosen) applyTo(row *client.EstimatedFile, credits func(int64) *json.Number) {
	f := c.files[row.Path]
	if row.Skipped != nil || f == nil {
		return
	}
	delete(c.files, row.Path) // of several files with one path, the first has all
	row.Points, row.Bytes, row.Credits = f.points, f.bytes, credits(f.tenths)
	row.Remarks = slices.DeleteFunc(row.Remarks, func(r client.EstimateRemark) bool {
		return r.Code == string(estimate.NoTime) && f.untimed == 0
	})
	for i := range row.Remarks {
		if r := &row.Remarks[i]; r.Code == string(estimate.NoTime) {
			r.Count = f.untimed
		}
	}
	if f.left > 0 {
		row.Remarks = append(row.Remarks, client.EstimateRemark{
			Code: "not-chosen", Count: f.left,
			Text: fmt.Sprintf("%d of %d data points are not among those that were asked for", f.left, f.left+f.points),
		})
	}
}
