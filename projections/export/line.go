package export

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/annals-project/annals/internal/pgarray"
)

// lineWriter writes lines. It writes long texts as they are read, without a copy of the line.
type lineWriter struct {
	to *bufio.Writer
	// compact is used for metadata.
	compact bytes.Buffer
}

// A field is omitted if its value is empty, except a label, which may be set and empty.
type head struct {
	ID        string  `json:"id"`
	Timestamp string  `json:"timestamp"`
	Label     *string `json:"label,omitempty"`
	Identity  *string `json:"identity,omitempty"`
	Audience  string  `json:"audience,omitempty"`
	Private   bool    `json:"private,omitempty"`
}

// dataPoint writes the line of a data point, with the fields that an item of POST /api/v1/ingest/batch has.
func (w *lineWriter) dataPoint(at Place, p *text) error {
	return w.text(headOf(at, p), p)
}

func headOf(at Place, p *text) head {
	return head{
		ID: at.SourceID, Timestamp: instant(at.OccurredAt), Label: p.label, Identity: p.author, Audience: p.readers.slug,
		Private: p.readers.identity != "",
	}
}

// text writes the line of a text, which begins with an object.
func (w *lineWriter) text(begin any, p *text) error {
	if err := w.begin(begin); err != nil {
		return err
	}
	if p.metadata != nil {
		w.compact.Reset()
		if err := json.Compact(&w.compact, p.metadata); err != nil { // a line break would end the line
			return fmt.Errorf("metadata of a data point: %w", err)
		}
		_, _ = w.to.WriteString(`,"metadata":`) // the writer keeps its first error
		_, _ = w.to.Write(w.compact.Bytes())
		if w.compact.Cap() > textBytes {
			w.compact = bytes.Buffer{}
		}
	}
	_, _ = w.to.WriteString(`,"content":`)
	w.string(p.content)
	_, err := w.to.WriteString("}\n")
	return err
}

// MemoryType is the type of the line of a memory. The line of a data point has no type.
const MemoryType = "memory"

type memoryHead struct {
	Type string `json:"type"`
	memoryName
	// ID is the id under which recall and trace show the memory. Another project has another one.
	ID         string `json:"id"`
	Kind       string `json:"kind"`
	OccurredAt string `json:"occurredAt"`
	// ResolvedFrom and ResolvedTo are the time that a temporal anchor names, half open.
	ResolvedFrom string `json:"resolvedFrom,omitempty"`
	ResolvedTo   string `json:"resolvedTo,omitempty"`
	// Inputs are what it was built from: data points, or memories if they have a number.
	Inputs []memoryName `json:"inputs"`
	// SupersededAt is when the first later claim on the same subject and attribute occurred, SupersededBy that claim.
	SupersededAt string      `json:"supersededAt,omitempty"`
	SupersededBy *memoryName `json:"supersededBy,omitempty"`
}

// memoryName names a memory without an id of ours: by its source and its number there, from 0.
type memoryName struct {
	SourceID string `json:"sourceId"`
	Number   *int   `json:"number,omitempty"`
}

// memory writes the line of a memory of a data point.
func (w *lineWriter) memory(sourceID string, d derived) error {
	h := memoryHead{
		Type: MemoryType, memoryName: memoryName{sourceID, &d.number}, ID: d.id.String(), Kind: d.kind,
		OccurredAt: instant(d.occurredAt), Inputs: []memoryName{},
	}
	h.ResolvedFrom, h.ResolvedTo = optional(d.resolvedFrom), optional(d.resolvedTo)
	if d.fromSource {
		h.Inputs = append(h.Inputs, memoryName{SourceID: sourceID})
	}
	for _, n := range d.inputs {
		number := int(n)
		h.Inputs = append(h.Inputs, memoryName{sourceID, &number})
	}
	if d.supersededAt != nil {
		h.SupersededAt, h.SupersededBy = instant(*d.supersededAt), &memoryName{*d.supersededSource, d.supersededNumber}
	}
	return w.derived(h, d)
}

// derived writes the line of a memory, which begins with an object.
func (w *lineWriter) derived(begin any, d derived) error {
	if err := w.begin(begin); err != nil {
		return err
	}
	_, _ = w.to.WriteString(`,"content":`)
	w.string(d.content)
	_, _ = w.to.WriteString(`,"excerpt":`)
	w.string(d.excerpt)
	_, err := w.to.WriteString("}\n")
	return err
}

// value writes a line.
func (w *lineWriter) value(v any) error {
	if err := w.begin(v); err != nil {
		return err
	}
	_, err := w.to.WriteString("}\n")
	return err
}

// begin writes an object without its closing brace.
func (w *lineWriter) begin(h any) error {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(h); err != nil {
		return fmt.Errorf("encode line: %w", err)
	}
	_, err := w.to.Write(bytes.TrimSuffix(b.Bytes(), []byte("}\n")))
	return err
}

// string writes text as a JSON string. An escape has one form only, so that equal texts make equal lines.
func (w *lineWriter) string(text []byte) {
	_ = w.to.WriteByte('"')
	from := 0
	for i, c := range text {
		if c >= 0x20 && c != '"' && c != '\\' {
			continue
		}
		_, _ = w.to.Write(text[from:i])
		from = i + 1
		switch c {
		case '"', '\\':
			_, _ = w.to.Write([]byte{'\\', c})
		case '\n':
			_, _ = w.to.WriteString(`\n`)
		case '\r':
			_, _ = w.to.WriteString(`\r`)
		case '\t':
			_, _ = w.to.WriteString(`\t`)
		default:
			_, _ = fmt.Fprintf(w.to, `\u%04x`, c)
		}
	}
	_, _ = w.to.Write(text[from:])
	_ = w.to.WriteByte('"')
}

// optional is instant for a time that may be missing.
func optional(t *time.Time) string {
	if t == nil {
		return ""
	}
	return instant(*t)
}

// instant writes a time of the years 1 to 9999 to the microsecond.
func instant(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000Z") }

// memoryReader reads the memories of the data points of a page, in their order, some data points at a time.
type memoryReader struct {
	db      *pgxpool.Pool
	project uuid.UUID
	keys    []key
	// loaded are the first memories of keys[:next] that are not written yet.
	loaded map[uuid.UUID][]derived
	next   int
}

// each calls do with every memory of the n-th data point, in order, and returns how many there are.
func (m *memoryReader) each(ctx context.Context, n int, do func(derived) error) (count int, err error) {
	k := m.keys[n]
	if n >= m.next {
		size := k.memories
		for m.next = n + 1; m.next < len(m.keys); m.next++ {
			if size += m.keys[m.next].memories; size > memoryCount {
				break
			}
		}
		if m.loaded, err = m.read(ctx, m.keys[n:m.next], 0, memoryCount); err != nil {
			return 0, err
		}
	}
	some := m.loaded[k.id]
	for {
		for _, d := range some {
			if err := do(d); err != nil {
				return count, err
			}
		}
		count += len(some)
		if len(some) < memoryCount {
			return count, nil
		}
		more, err := m.read(ctx, m.keys[n:n+1], count, count+memoryCount)
		if err != nil {
			return count, err
		}
		some = more[k.id]
	}
}

// derived is a memory as a line shows it.
type derived struct {
	id                       uuid.UUID
	number                   int
	kind                     string
	content, excerpt         []byte
	occurredAt               time.Time
	resolvedFrom, resolvedTo *time.Time
	// inputs are the numbers of the memories that it was built from; fromSource reports whether the source is one.
	inputs     []int32
	fromSource bool
	// The claim that superseded it.
	supersededAt     *time.Time
	supersededSource *string
	supersededNumber *int
}

// The superseding claim is that of a reader of all audiences: see projections/recall.
const selectMemories = `select m.data_point, m.id, m.ordinal, m.kind, m.content, m.excerpt, m.occurred_at, m.resolved_from, m.resolved_to,
		coalesce((select array_agg(i.ordinal order by i.ordinal) from memories.edges e
			join memories.memories i on i.id = e.input_id where e.derived_id = m.id), '{}'),
		exists (select from memories.edges e where e.derived_id = m.id
			and not exists (select from memories.memories i where i.id = e.input_id)),
		later.occurred_at, later.source_id, later.ordinal
	from unnest($2::uuid[], $3::int[]) k (id, revision)
	cross join lateral (select revision from memories.captured where data_point = k.id offset 0) own
	cross join lateral (select * from memories.memories
		where data_point = k.id and revision = least(k.revision, own.revision) and ordinal >= $4 and ordinal < $5 offset 0) m
	left join lateral (
		select n.occurred_at, d.source_id, n.ordinal from memories.memories n
		cross join lateral (select from memories.captured where data_point = n.data_point and revision = n.revision offset 0) c
		cross join lateral (select source_id from datapoints.data_points where id = n.data_point offset 0) d
		where n.project_id = $1 and n.subject = m.subject and n.attribute = m.attribute and n.kind = 'claim' and n.subject is not null
			and (n.occurred_at, n.id) > (m.occurred_at, m.id)
		order by n.occurred_at, n.id limit 1
	) later on m.kind = 'claim' and m.subject is not null
	order by m.data_point, m.ordinal`

// read reads the memories of data points from one number to another, exclusive.
func (m *memoryReader) read(ctx context.Context, keys []key, from, to int) (map[uuid.UUID][]derived, error) {
	rows, err := m.db.Query(ctx, selectMemories, m.project, pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }),
		pgarray.Column(keys, func(k key) int32 { return int32(k.revision) }), from, to)
	if err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	defer rows.Close()
	found := map[uuid.UUID][]derived{}
	for rows.Next() {
		var of uuid.UUID
		var d derived
		if err := rows.Scan(&of, &d.id, &d.number, &d.kind, &d.content, &d.excerpt, &d.occurredAt, &d.resolvedFrom,
			&d.resolvedTo, &d.inputs, &d.fromSource, &d.supersededAt, &d.supersededSource, &d.supersededNumber); err != nil {
			return nil, fmt.Errorf("read memories: %w", err)
		}
		found[of] = append(found[of], d)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read memories: %w", err)
	}
	return found, nil
}
