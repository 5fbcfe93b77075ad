// Package importer sends a file of data points, one JSON object a line, in batches: several in
// flight, in order for each source id, and able to go on after a stop.
package importer

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/fields"
)

// MaxLine is the longest line that is read: 16 MiB of content with every byte escaped, and some metadata.
const MaxLine = 104 << 20

// LineError is a line that is no data point.
type LineError struct {
	Line int
	Err  error
}

func (e *LineError) Error() string { return fmt.Sprintf("line %d: %v", e.Line, e.Err) }

func (e *LineError) Unwrap() error { return e.Err }

// point is one line that was read.
type point struct {
	line int
	// id is the source id, as sent or as the server makes it where none is.
	id string
	// raw is the object as written, content the size of its content.
	raw     json.RawMessage
	content int
	// end is the offset after the line, and sum the SHA-256 of the input up to it.
	end int64
	sum string
	// skipped counts the lines before it that were skipped, from the beginning of this run.
	skipped int
}

// lines reads points from an input. It begins with an empty hash: what is skipped has to be read through it.
type lines struct {
	in     *bufio.Reader
	line   int
	offset int64
	hash   hash.Hash
	// skipped counts lines that an export writes besides data points.
	skipped int
}

func newLines(in io.Reader) *lines {
	return &lines{in: bufio.NewReaderSize(in, 1<<20), hash: sha256.New()}
}

func (l *lines) sum() string { return hex.EncodeToString(l.hash.Sum(nil)) }

// next returns the next data point; io.EOF at the end. Blank lines and the memories of an export are skipped.
func (l *lines) next() (point, error) {
	for {
		text, err := l.read()
		if err != nil {
			return point{}, err
		}
		trimmed := bytes.TrimSpace(text)
		if l.line == 1 {
			trimmed = bytes.TrimPrefix(trimmed, []byte("\xef\xbb\xbf"))
		}
		if len(trimmed) == 0 {
			continue
		}
		id, content, err := check(trimmed)
		if err != nil && isMemory(trimmed) {
			l.skipped++
			continue
		}
		if err != nil {
			return point{}, &LineError{l.line, err}
		}
		return point{
			line: l.line, id: id, raw: trimmed, content: content, end: l.offset, sum: l.sum(), skipped: l.skipped,
		}, nil
	}
}

// read returns one line, which may lack its newline at the end of the input.
func (l *lines) read() ([]byte, error) {
	var text []byte
	for {
		part, err := l.in.ReadSlice('\n')
		text = append(text, part...)
		if len(text) > MaxLine {
			return nil, &LineError{l.line + 1, fmt.Errorf("is longer than %d MiB", MaxLine>>20)}
		}
		if errors.Is(err, bufio.ErrBufferFull) {
			continue
		}
		if err != nil && !errors.Is(err, io.EOF) {
			return nil, fmt.Errorf("read input: %w", err)
		}
		if len(text) == 0 {
			return nil, io.EOF
		}
		l.line++
		l.offset += int64(len(text))
		_, _ = l.hash.Write(text) // a hash takes everything
		return text, nil
	}
}

// skip reads on to an offset, without looking at what it passes.
func (l *lines) skip(offset int64) error {
	for l.offset < offset {
		if _, err := l.read(); err != nil {
			if errors.Is(err, io.EOF) {
				return errors.New("the input is shorter than what was sent of it")
			}
			return err
		}
	}
	return nil
}

// check returns the source id of a line and the size of its content, or why the line is not a data point. The server
// checks again; here the number of the line is known.
func check(line []byte) (id string, content int, err error) {
	if !utf8.Valid(line) {
		return "", 0, errors.New("is not UTF-8")
	}
	// Pointers tell what is omitted from what is empty.
	var p struct {
		Content   *string         `json:"content"`
		ID        *string         `json:"id"`
		Label     *string         `json:"label"`
		Timestamp *string         `json:"timestamp"`
		Metadata  json.RawMessage `json:"metadata"`
		Audience  *string         `json:"audience"`
		Identity  *string         `json:"identity"`
		Private   *bool           `json:"private"`
	}
	dec := json.NewDecoder(bytes.NewReader(line))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&p); err != nil {
		return "", 0, fmt.Errorf("is no data point: %s", strings.TrimPrefix(err.Error(), "json: "))
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return "", 0, errors.New("holds more than one JSON value")
	}
	switch {
	case p.Content == nil || strings.TrimSpace(*p.Content) == "":
		return "", 0, errors.New("has no content")
	case len(*p.Content) > limit.ContentBytes:
		return "", 0, fmt.Errorf("has more than %d MiB of content", limit.ContentBytes>>20)
	case p.ID != nil && *p.ID != "":
		return *p.ID, len(*p.Content), nil
	case p.ID != nil:
		return "", 0, errors.New("has an empty id: leave it out, or give one")
	default:
		return DefaultID(*p.Content), len(*p.Content), nil
	}
}

// isMemory reports whether a line is what an export writes of a memory: the service derives it again.
func isMemory(line []byte) bool {
	var l struct {
		Type string `json:"type"`
	}
	return json.Unmarshal(line, &l) == nil && l.Type == "memory"
}

// DefaultID returns the source id of a data point that is sent without one.
func DefaultID(content string) string {
	sum := sha256.Sum256([]byte(content))
	return hex.EncodeToString(sum[:])
}

// Line writes a data point as one line of an input.
func Line(p client.DataPoint) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(p); err != nil {
		return nil, fmt.Errorf("encode data point: %w", err)
	}
	return b.Bytes(), nil
}

// Count is the size of an input: data points, bytes, and what they cost in tenths of a credit if each is new.
type Count struct {
	Points       int
	Bytes        int64
	CreditTenths int64
}

// Check reads an input to its end. The first line that is not a data point is a *LineError.
func Check(in io.Reader) (c Count, err error) {
	l := newLines(in)
	for ; ; c.Points++ {
		p, err := l.next()
		if errors.Is(err, io.EOF) {
			c.Bytes = l.offset
			return c, nil
		}
		if err != nil {
			return Count{}, err
		}
		c.CreditTenths += metering.IngestTenths(int64(p.content))
	}
}

// line is a data point of a file as a batch takes it.
type line struct {
	ID        string          `json:"id"`
	Content   string          `json:"content"`
	Label     string          `json:"label,omitempty"`
	Timestamp *time.Time      `json:"timestamp,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Audience  string          `json:"audience,omitempty"`
	Identity  string          `json:"identity,omitempty"`
}

// Bytes is a file as it is on a disk.
type Bytes struct {
	Path    string
	Content []byte
}

// Cut cuts some files into data points, as an estimate does, and returns them as the lines of an input. What a file
// names no audience for gets one, or none if it is "". The fault is content-too-large.
func Cut(
	ctx context.Context, zone *time.Location, audience string, files int, open func(i int) (Bytes, error),
) ([]byte, *estimate.Estimate, error) {
	plan := estimate.NewPlan(zone, -1)
	read := func(i int) (estimate.File, error) {
		file, err := open(i)
		if err != nil {
			return estimate.File{}, err
		}
		return estimate.Decoded(ctx, file.Path, "", file.Content)
	}
	for i := range files {
		file, err := read(i)
		if err == nil {
			err = plan.AddFile(ctx, file)
		}
		if errors.Is(err, estimate.ErrContents) || errors.Is(err, estimate.ErrKept) {
			err = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the files are too many data points: choose fewer")
		}
		if err != nil {
			return nil, nil, err
		}
	}
	made, err := plan.Estimate(ctx, estimate.Room{})
	if err != nil {
		return nil, nil, err
	}
	rows, err := made.Rows(ctx, estimate.Source{File: read}, func() {})
	if err != nil {
		return nil, nil, err
	}
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for row, err := range rows {
		if err != nil {
			return nil, nil, err
		}
		l := line{row.ID, row.Content, row.Label, nil, row.Metadata, cmp.Or(row.Audience, audience), row.Identity}
		if !row.At.IsZero() {
			l.Timestamp = &row.At
		}
		if err := to.Encode(l); err != nil {
			return nil, nil, err
		}
	}
	return lines.Bytes(), made, nil
}

// The size of a batch. The server takes 1,000 items and 16 MiB; half of it keeps more batches moving at once.
const (
	MaxItems = 500
	MaxBytes = 8 << 20
)

// batch is what one request carries: consecutive lines without a repeated source id.
type batch struct {
	items []json.RawMessage
	ids   []string
	// lines are the line numbers of the items.
	lines []int
	bytes int
	// skipped counts the lines that were skipped before the last item, from the beginning of this run.
	skipped int
	// start and end are the offsets of the input that the batch covers, and sum the hash of all before end.
	start, end int64
	sum        string
}

// key is the idempotency key of the batch in one import: the same lines at the same place have the same key.
func (b *batch) key(importID string) string {
	h := sha256.New()
	_, _ = io.WriteString(h, importID+" "+strconv.FormatInt(b.start, 10))
	for _, item := range b.items {
		_, _ = fmt.Fprintf(h, " %d ", len(item))
		_, _ = h.Write(item)
	}
	return "import-" + hex.EncodeToString(h.Sum(nil))
}

// batches cuts an input. Where a batch ends depends only on where it begins and on what follows.
type batches struct {
	lines *lines
	limit int
	// end is where the last batch ended.
	end int64
	// held and err were already read and belong after the last batch.
	held *point
	err  error
}

// next returns the next batch, io.EOF at the end. A line that is not a data point is a *LineError, after
// the batch of the lines before it.
func (c *batches) next() (*batch, error) {
	b := &batch{start: c.end}
	seen := map[string]bool{}
	for len(b.items) < c.limit {
		p, err := c.point()
		if err != nil {
			if len(b.items) == 0 {
				return nil, err
			}
			c.err = err
			break
		}
		if seen[p.id] || (len(b.items) > 0 && b.bytes+len(p.raw) > MaxBytes) {
			c.held = &p
			break
		}
		seen[p.id] = true
		b.items, b.ids, b.lines = append(b.items, p.raw), append(b.ids, p.id), append(b.lines, p.line)
		b.bytes += len(p.raw) + 1
		b.end, b.sum, b.skipped = p.end, p.sum, p.skipped
	}
	c.end = b.end
	return b, nil
}

func (c *batches) point() (point, error) {
	if c.held != nil {
		p := *c.held
		c.held = nil
		return p, nil
	}
	if c.err != nil {
		return point{}, c.err
	}
	return c.lines.next()
}

// Local sends within the service: it calls the command that the API calls.
type Local func(ctx context.Context, items []fields.DataPoint, key string) (LocalReceipt, error)

// LocalReceipt is the receipt of a batch.
type LocalReceipt struct {
	ProjectID   int64
	IngestionID string
	// Unchanged is by item.
	Unchanged []bool
}

// IngestBatch implements Sender. It reads the items as the API does; a fault becomes what a client would get.
func (l Local) IngestBatch(ctx context.Context, b client.Batch) (*client.BatchReceipt, error) {
	items := make([]fields.DataPoint, len(b.RawItems))
	for i, raw := range b.RawItems {
		var err error
		at := fmt.Sprintf("items[%d]", i)
		if items[i], err = fields.Decode(raw, at, fields.DataPointNames, fields.DataPointOf); err != nil {
			return nil, refusal(err)
		}
	}
	sent, err := l(ctx, items, b.IdempotencyKey)
	if err != nil {
		return nil, refusal(err)
	}
	receipt := &client.BatchReceipt{ProjectID: sent.ProjectID, IngestionID: sent.IngestionID}
	for i := range sent.Unchanged {
		receipt.Items = append(receipt.Items, client.ItemReceipt{Ordinal: i, Unchanged: &sent.Unchanged[i]})
	}
	return receipt, nil
}

func refusal(err error) error {
	f, is := errors.AsType[*fault.Error](err)
	if !is || f.Kind == fault.Unavailable {
		return err
	}
	data, err := json.Marshal(f.Data)
	if err != nil {
		return err
	}
	return &client.APIError{Code: f.Code, Message: f.Msg, Data: data}
}

// Refused returns what is wrong with an input, for people, if that is why a run ended: another run ends the same way.
func Refused(err error) (reason string, ok bool) {
	if line, is := errors.AsType[*LineError](err); is {
		return line.Error(), true
	}
	if refused, is := errors.AsType[*client.APIError](err); is {
		lines := strings.TrimSuffix(err.Error(), refused.Error())
		return fmt.Sprintf("%s%s (%s)", lines, refused.Message, refused.Code), true
	}
	return "", false
}
