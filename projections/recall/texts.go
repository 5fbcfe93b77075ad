package recall

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sort"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/unnest"
)

// revisionKey names a revision of a data point.
type revisionKey struct {
	dataPoint uuid.UUID
	revision  int
}

// body is the text of a revision. Content is nil where it was not asked for, or lies in a blob that was not read yet.
type body struct {
	whole        bool // content was asked for
	content      []byte
	contentBlob  *blob.Ref
	metadata     *string
	metadataBlob *blob.Ref
	label        *string
	// ready says that blobs were read; gone that one of them was erased meanwhile.
	ready, gone bool
}

const selectBodies = `select r.data_point, r.number, c.whole, case when c.whole then r.content end, r.content_blob, r.metadata, r.metadata_blob, r.label
	from unnest($1::uuid[], $2::int[], $3::bool[]) c (id, number, whole)
	cross join lateral (select * from datapoints.revisions where data_point = c.id and number = c.number offset 0) r`

// bodies reads revisions of data points that passed, all of them with their content but the first where it is not to be whole.
func (g *gate) bodies(ctx context.Context, wanted []revisionKey, firstWhole bool) (map[revisionKey]*body, error) {
	found := make(map[revisionKey]*body, len(wanted))
	rows, err := g.db.Query(ctx, selectBodies, unnest.IDs(wanted, func(k revisionKey) uuid.UUID { return k.dataPoint }),
		unnest.Column(wanted, func(k revisionKey) int32 { return int32(k.revision) }),
		unnest.Column(wanted, func(k revisionKey) bool { return firstWhole || k != wanted[0] }))
	if err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	defer rows.Close()
	for rows.Next() {
		var key revisionKey
		b := new(body)
		if err := rows.Scan(&key.dataPoint, &key.revision, &b.whole, &b.content, &b.contentBlob, &b.metadata, &b.metadataBlob, &b.label); err != nil {
			return nil, fmt.Errorf("read texts: %w", err)
		}
		found[key] = b
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read texts: %w", err)
	}
	return found, nil
}

// texts reads what a page shows, some documents at a time, in the order in which they are likely to be shown.
type texts struct {
	gate  *gate
	blobs interface {
		ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error)
	}
	ranking *ranking
	log     *slog.Logger
	// bodies are those that were read, nil where there was nothing.
	bodies map[revisionKey]*body
	// order is the candidates by score; those before loaded were read. The next time so many bytes are read.
	order  []int
	loaded int
	reach  int64
	err    error
}

// What is read at a time: at first what a page of plain ASCII holds, then more and more, up to so many documents and bytes.
const (
	readDocuments = 128
	readBytes     = 4 << 20
)

// cost is what a document costs; ok is false where its text is gone, or after an error.
func (t *texts) cost(ctx context.Context, e recall.Entry, budget int) (tokens int, ok bool) {
	if t.err != nil {
		return 0, false
	}
	b := t.body(ctx, e, budget)
	if b == nil {
		return 0, false
	}
	if e.Memory != recall.Source {
		l := t.ranking.lines[e.Candidate][e.Memory]
		return recall.Tokens(l.content, l.excerpt), true
	}
	return recall.Tokens(string(b.content)), true
}

// key is the revision that a document shows or cites.
func (t *texts) key(e recall.Entry) revisionKey {
	id := t.ranking.ids[e.Candidate]
	if e.Memory != recall.Source {
		return revisionKey{id, t.ranking.lines[e.Candidate][e.Memory].revision}
	}
	return revisionKey{id, t.ranking.points[e.Candidate].revision}
}

// body is the revision behind a document, with the blobs that the document needs; nil where it is gone.
func (t *texts) body(ctx context.Context, e recall.Entry, budget int) *body {
	key, whole := t.key(e), e.Memory == recall.Source
	if b, read := t.bodies[key]; !read || b != nil && whole && !b.whole {
		t.load(ctx, key, whole, budget)
	}
	b := t.bodies[key]
	if t.err != nil || b == nil || b.gone {
		return nil
	}
	if whole && b.content == nil && b.contentBlob != nil {
		b.content = t.blob(ctx, b, b.contentBlob)
	}
	if !b.ready && b.metadataBlob != nil {
		if metadata := t.blob(ctx, b, b.metadataBlob); metadata != nil {
			text := string(metadata)
			b.metadata = &text
		}
	}
	b.ready = true
	if t.err != nil || b.gone {
		return nil
	}
	return b
}

// blob reads a blob. One that is gone takes its document out of the page: it is being erased.
func (t *texts) blob(ctx context.Context, b *body, ref *blob.Ref) []byte {
	data, err := t.blobs.ReadBlob(ctx, *ref)
	if _, lost := errors.AsType[*eventstore.BlobError](err); lost {
		b.gone = true
		t.log.WarnContext(ctx, "text of a data point is missing", "blob", ref.Stream, "err", err)
		return nil
	}
	if err != nil {
		t.err = fmt.Errorf("read text: %w", err)
		return nil
	}
	return data
}

// load reads a revision, and with it the sources that come next and may fit.
func (t *texts) load(ctx context.Context, first revisionKey, whole bool, budget int) {
	if t.order == nil {
		t.reach = 4 * int64(budget)
		t.order = make([]int, len(t.ranking.candidates))
		for i := range t.order {
			t.order[i] = i
		}
		sort.SliceStable(t.order, func(a, b int) bool { return t.place(t.order[a]) > t.place(t.order[b]) })
	}
	wanted := []revisionKey{first}
	size := int64(0)
	for t.loaded < len(t.order) && len(wanted) < readDocuments && size < min(t.reach, readBytes) {
		i := t.order[t.loaded]
		t.loaded++
		p := t.ranking.points[i]
		if !p.within || recall.LeastTokens(p.size) > int64(budget) {
			continue
		}
		if p.big == nil {
			size += p.size
		}
		key := revisionKey{t.ranking.ids[i], p.revision}
		if _, read := t.bodies[key]; read || key == first {
			continue
		}
		wanted = append(wanted, key)
	}
	t.reach *= growth
	found, err := t.gate.bodies(ctx, wanted, whole)
	if err != nil {
		t.err = err
		return
	}
	for _, key := range wanted {
		t.bodies[key] = found[key]
	}
}

func (t *texts) place(i int) float64 {
	c := &t.ranking.candidates[i]
	best := c.Score
	for _, m := range c.Memories {
		best = max(best, m.Score)
	}
	return best
}

// result is a document of the page as it is answered.
func (t *texts) result(e recall.Entry, rank int) Result {
	p, b := t.ranking.points[e.Candidate], t.bodies[t.key(e)]
	source := Source{SourceID: p.sourceID, OccurredAt: p.occurredAt, Label: b.label, Excerpts: []string{}}
	if b.metadata != nil {
		source.Metadata = json.RawMessage(*b.metadata)
	}
	if e.Memory == recall.Source {
		return Result{
			ID: p.node, Rank: rank, OccurredAt: p.occurredAt, Content: string(b.content),
			Artifact: Artifact{ID: p.node, Kind: KindSource, OccurredAt: p.occurredAt}, Sources: []Source{source},
		}
	}
	l := t.ranking.lines[e.Candidate][e.Memory]
	source.OccurredAt, source.Excerpts = l.occurredAt, []string{l.excerpt}
	return Result{
		ID: l.id, Rank: rank, OccurredAt: l.occurredAt, Content: l.content,
		Artifact: Artifact{ID: l.id, Kind: l.kind, OccurredAt: l.occurredAt, SupersededAt: l.supersededAt}, Sources: []Source{source},
	}
}
