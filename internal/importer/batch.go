package importer

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
)

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
