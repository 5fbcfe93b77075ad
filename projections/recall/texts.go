package recall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/allowance"
	"github.com/annals-project/annals/internal/pg/replica"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
)

const (
	// ResponseBytes is the most bytes of a response: contents, excerpts, labels and metadata. The
	// document that exceeds it ends the response.
	ResponseBytes = 16 << 20
	// documentBytes is what a document takes besides its texts.
	documentBytes = 512
	// MaxRead is the most bytes of contents that one recall reads to count their tokens or for their passages.
	MaxRead = 64 << 20
	// keptBytes is the most bytes of counted contents that stay in memory until the response is
	// complete. Others are read again.
	keptBytes = 4 << 20
)

// revisionKey names a revision of a data point.
type revisionKey struct {
	dataPoint uuid.UUID
	revision  int
}

// body is the text of a revision.
type body struct {
	content      []byte
	contentBlob  *blob.Ref
	metadata     json.RawMessage
	metadataBlob *blob.Ref
	label        *string
	// ready reports whether everything that a response shows of it was read; gone reports whether a
	// blob of it was erased.
	ready, gone bool
}

// part is what to read of a revision.
type part struct {
	revisionKey
	content, metadata bool
}

const selectBodies = `select r.data_point, r.number, case when c.content then r.content end, r.content_blob, case when c.metadata then r.metadata end,
		r.metadata_blob, r.label
	from unnest($1::uuid[], $2::int[], $3::bool[], $4::bool[]) c (id, number, content, metadata)
	cross join lateral (select * from datapoints.revisions where data_point = c.id and number = c.number offset 0) r`

// readBodies reads parts of revisions.
func readBodies(ctx context.Context, db Snapshot, wanted []part) (map[revisionKey]*body, error) {
	found := make(map[revisionKey]*body, len(wanted))
	rows, err := db.Query(ctx, selectBodies, pgarray.IDs(wanted, func(w part) uuid.UUID { return w.dataPoint }),
		pgarray.Column(wanted, func(w part) int32 { return int32(w.revision) }),
		pgarray.Column(wanted, func(w part) bool { return w.content }),
		pgarray.Column(wanted, func(w part) bool { return w.metadata }))
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	var key revisionKey
	var b body
	columns := []any{
		&key.dataPoint, &key.revision, &b.content, &b.contentBlob, (*[]byte)(&b.metadata), &b.metadataBlob, &b.label,
	}
	if _, err := pgx.ForEachRow(rows, columns, func() error { found[key] = new(b); return nil }); err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return found, nil
}

// bodies reads parts of revisions that passed the gate: at the replica, since a revision never changes,
// and at the primary what the replica does not have yet.
func (g *gate) bodies(ctx context.Context, wanted []part) (map[revisionKey]*body, error) {
	var found map[revisionKey]*body
	need := replica.Need{Kind: "bodies", Projections: []string{projection.DataPoints}}
	served, err := g.replica.Read(ctx, need, func(ctx context.Context, db replica.Snapshot) (err error) {
		found, err = readBodies(ctx, db, wanted)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !served {
		return readBodies(ctx, g.db, wanted)
	}
	missing := slices.DeleteFunc(slices.Clone(wanted), func(w part) bool { return found[w.revisionKey] != nil })
	if len(missing) == 0 {
		return found, nil
	}
	rest, err := readBodies(ctx, g.db, missing)
	if err != nil {
		return nil, err
	}
	maps.Copy(found, rest)
	return found, nil
}

// texts returns what the documents of a pass cost, and reads them once they are chosen.
type texts struct {
	*Pass
	// contents are counted contents of blobs, and texts to be read for their passages; held is their size in bytes.
	contents map[revisionKey][]byte
	held     int64
	err      error
	// shortened is true if the response is without metadata that is over its bound.
	shortened bool
}

// compose chooses the documents of the response.
func (p *Pass) compose(ctx context.Context) error {
	t := &texts{Pass: p, contents: map[revisionKey][]byte{}}
	cost := func(e recall.Entry) (recall.Cost, bool) { return t.cost(ctx, e) }
	passages := func(candidate int, left recall.Cost, next []int) []recall.Passage {
		return t.passages(ctx, candidate, left, next)
	}
	budget := recall.Budget{Tokens: p.Budget, Bytes: ResponseBytes}
	p.texts, p.Composed = t, recall.Compose(p.Ranking.Candidates, p.Limit, budget, cost, passages)
	return t.err
}

// read reads the chosen documents. It leaves out a document that is being erased.
func (p *Pass) read(ctx context.Context) error {
	if err := p.texts.load(ctx); err != nil {
		return err
	}
	page := Response{AsOf: p.gate.perspective, Results: make([]Result, 0, len(p.Composed.Entries))}
	for _, e := range p.Composed.Entries {
		result, ok := p.texts.result(e, len(page.Results)+1)
		if !ok {
			continue
		}
		if p.texts.leavesOut(e) {
			page.MetadataLeftOut++
		}
		cost, _ := p.texts.cost(ctx, e)
		page.UsedEvidenceTokens += cost.Tokens
		page.Results = append(page.Results, result)
	}
	if p.Chronological {
		slices.SortStableFunc(page.Results, func(a, b Result) int { return a.OccurredAt.Compare(b.OccurredAt) })
	}
	p.Page = page
	return nil
}

// cost returns what a document costs; ok is false if its text is gone, or after an error.
func (t *texts) cost(ctx context.Context, e recall.Entry) (cost recall.Cost, ok bool) {
	if t.err != nil {
		return cost, false
	}
	p := t.Ranking.DataPoints[e.Candidate]
	switch cost = t.carried(e.Candidate); e.Memory {
	case recall.Source:
		if p.tokens == nil && !t.count(ctx, t.key(e), p) {
			return cost, false
		}
		cost.Tokens, cost.Bytes = *p.tokens, cost.Bytes+p.size
	case recall.InPart:
		passage := t.passage(e)
		if passage == nil {
			return cost, false
		}
		cost = t.passageCost(e.Candidate, passage)
	default:
		l := t.Ranking.Memories[e.Candidate][e.Memory]
		cost.Bytes += t.bounded(t.metadataSize(e)) - t.bounded(p.metadataSize)
		cost.Tokens, cost.Bytes = recall.Tokens(l.content, l.excerpt), cost.Bytes+int64(len(l.content)+len(l.excerpt))
	}
	return cost, true
}

// carried returns what a document of a candidate costs besides its texts: no tokens.
func (t *texts) carried(candidate int) (cost recall.Cost) {
	p := t.Ranking.DataPoints[candidate]
	cost.Bytes = documentBytes + t.bounded(p.metadataSize)
	if p.label != nil {
		cost.Bytes += int64(len(*p.label))
	}
	return cost
}

// metadataSize returns the bytes of the metadata of a document.
func (t *texts) metadataSize(e recall.Entry) int64 {
	if e.Memory >= 0 {
		if size := t.Ranking.Memories[e.Candidate][e.Memory].metadataSize; size != nil {
			return *size
		}
	}
	return t.Ranking.DataPoints[e.Candidate].metadataSize
}

// bounded returns the bytes of metadata that count, 0 of one that may be left out.
func (t *texts) bounded(size int64) int64 {
	if each := t.Values.Each; each > 0 && size > each {
		return 0
	}
	return size
}

// count counts the tokens of a content in a blob. It returns false if the content is gone, or if
// too much was read already.
func (t *texts) count(ctx context.Context, key revisionKey, p *dataPointRow) bool {
	if p.big == nil || t.gate.counted+p.big.Size > MaxRead {
		return false
	}
	t.gate.counted += p.big.Size
	data := t.blob(ctx, p.big)
	if data == nil {
		return false
	}
	tokens := recall.Tokens(string(data))
	p.tokens = &tokens
	if t.held+p.big.Size <= keptBytes {
		t.hold(key, data)
	}
	return true
}

// hold keeps a content until it is shown or dropped.
func (t *texts) hold(key revisionKey, content []byte) {
	t.held += int64(len(content))
	t.contents[key] = content
}

// drop frees a content that is not needed any more.
func (t *texts) drop(key revisionKey) {
	t.held -= int64(len(t.contents[key]))
	delete(t.contents, key)
}

// key is the revision that a document shows or cites.
func (t *texts) key(e recall.Entry) revisionKey {
	key := t.sourceKey(e.Candidate)
	if e.Memory >= 0 {
		key.revision = t.Ranking.Memories[e.Candidate][e.Memory].revision
	}
	return key
}

// blob reads a blob. It returns nil if the blob is gone, or after an error.
func (t *texts) blob(ctx context.Context, ref *blob.Ref) []byte {
	if t.err != nil {
		return nil
	}
	data, err := t.service.config.Blobs.ReadBlob(ctx, *ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		t.service.config.Log.WarnContext(ctx, "blob of a data point is missing, its document is left out",
			"blob", ref.Stream, "err", err)
		return nil
	}
	if err != nil {
		t.err = fmt.Errorf("read text: %w", err)
		return nil
	}
	return data
}

// load reads what the response shows and nothing else. It reserves the bytes first; the HTTP
// request releases them.
func (t *texts) load(ctx context.Context) error {
	bytes := t.Composed.Used.Bytes
	for _, e := range t.Composed.Entries {
		size := t.metadataSize(e)
		bytes += size - t.bounded(size)
	}
	if t.shortened = t.Values.Each > 0 && bytes > t.Values.Total; t.shortened {
		bytes = t.Composed.Used.Bytes
	}
	if err := allowance.Reserve(ctx, bytes); err != nil {
		return err
	}
	most := len(t.Composed.Entries)
	wanted, places := make([]part, 0, most), make(map[revisionKey]int, most)
	for _, e := range t.Composed.Entries {
		key := t.key(e)
		if b := t.gate.texts[key]; b != nil && b.ready {
			continue
		}
		at, known := places[key]
		if !known {
			at = len(wanted)
			places[key], wanted = at, append(wanted, part{revisionKey: key, metadata: !t.leavesOut(e)})
		}
		wanted[at].content = wanted[at].content || e.Memory == recall.Source
	}
	if len(wanted) == 0 {
		return nil
	}
	found, err := t.gate.bodies(ctx, wanted)
	if err != nil {
		return err
	}
	for _, w := range wanted {
		b := found[w.revisionKey]
		if b == nil {
			continue
		}
		t.fill(ctx, w, b)
		t.gate.texts[w.revisionKey] = b
	}
	return t.err
}

// leavesOut reports whether a document is shown without its metadata.
func (t *texts) leavesOut(e recall.Entry) bool {
	size := t.metadataSize(e)
	return t.shortened && t.bounded(size) != size
}

// fill reads the blobs of a revision that the response shows. If one is gone, the data point is
// being erased and its documents are left out.
func (t *texts) fill(ctx context.Context, w part, b *body) {
	b.ready = true
	if w.content && b.contentBlob != nil {
		if b.content = t.contents[w.revisionKey]; b.content == nil {
			b.content = t.blob(ctx, b.contentBlob)
		}
		t.drop(w.revisionKey)
		b.gone = b.content == nil
	}
	if w.metadata && b.metadataBlob != nil && !b.gone {
		b.metadata = t.blob(ctx, b.metadataBlob)
		b.gone = b.metadata == nil
	}
}

// result returns a document as a response shows it; ok is false if its text is gone.
func (t *texts) result(e recall.Entry, rank int) (r Result, ok bool) {
	p, b := t.Ranking.DataPoints[e.Candidate], t.gate.texts[t.key(e)]
	if b == nil || b.gone {
		return Result{}, false
	}
	source := Source{
		SourceID: p.sourceID, OccurredAt: p.occurredAt, Label: b.label, Metadata: b.metadata, Excerpts: []string{},
	}
	if t.leavesOut(e) {
		source.Metadata = json.RawMessage("{}")
	}
	if e.Memory == recall.Source {
		return Result{
			ID: p.node, Rank: rank, OccurredAt: p.occurredAt, Content: string(b.content),
			Artifact: Artifact{ID: p.node, Kind: KindSource, OccurredAt: p.occurredAt}, Sources: []Source{source},
		}, true
	}
	if e.Memory == recall.InPart {
		return t.passageResult(e, rank, source)
	}
	l := t.Ranking.Memories[e.Candidate][e.Memory]
	source.OccurredAt, source.Excerpts = l.occurredAt, []string{l.excerpt}
	return Result{
		ID: l.ID, Rank: rank, OccurredAt: l.occurredAt, Content: l.content,
		Artifact: Artifact{ID: l.ID, Kind: l.kind, OccurredAt: l.occurredAt, SupersededAt: l.supersededAt},
		Sources:  []Source{source},
	}, true
}
