package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// Apply implements recallindex.Index. A port's Scope and Move do not name documents, so it searches
// for those first: everything that was written before is refreshed by then.
func (x *Index) Apply(ctx context.Context, changes []recallindex.Change) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	g := x.current()
	err := x.apply(ctx, g, changes)
	if isMissing(err) {
		err = errors.Join(err, x.lost(ctx, g))
	}
	if err != nil {
		return fmt.Errorf("write recall index: %w", err)
	}
	return nil
}

func (x *Index) apply(ctx context.Context, g generation, changes []recallindex.Change) error {
	for _, c := range changes {
		if len(c.Upserts) > 0 && c.Analysis != g.analysis {
			return recallindex.ErrOtherAnalysis
		}
	}
	p, err := newPage(changes)
	if err != nil || p.isEmpty() {
		return err
	}
	if err := x.refreshRest(ctx, g); err != nil {
		return err
	}
	x.setUnrefreshed(true)
	if err := x.deleteScopes(ctx, g, p); err != nil {
		return err
	}
	if _, err := x.bulk(ctx, g, p.upserts); err != nil {
		return err
	}
	if err := x.move(ctx, g, p); err != nil {
		return err
	}
	if err := x.refresh(ctx, g); err != nil {
		return err
	}
	x.setUnrefreshed(false)
	return nil
}

// page is what changes do to documents.
type page struct {
	// scopes are to delete, with the position of their page.
	scopes map[string]int64
	// moves are data points to move; moved are the same by data point.
	moves map[string]move
	// upserts are of different documents. written are their ids.
	upserts []operation
	written map[string]struct{}
}

// move is the new audience of the documents of a data point.
type move struct {
	audience uuid.UUID
	version  int64
}

func (p *page) isEmpty() bool { return len(p.scopes)+len(p.moves)+len(p.upserts) == 0 }

func newPage(changes []recallindex.Change) (*page, error) {
	p := &page{scopes: map[string]int64{}, moves: map[string]move{}, written: map[string]struct{}{}}
	for _, c := range changes {
		version := int64(c.Position)
		for _, s := range c.Deletes {
			p.scopes[scope(c.Project, s)] = version
		}
		for _, m := range c.Moves {
			p.moves[dataPoint(c.Project, m.DataPoint)] = move{m.Audience, version}
		}
		// Of several with one key the last one counts.
		for i := len(c.Upserts) - 1; i >= 0; i-- {
			d := c.Upserts[i]
			id := identifier(c.Project, d.Key)
			if _, twice := p.written[id]; twice {
				continue
			}
			p.written[id] = struct{}{}
			if m, moves := p.moves[dataPoint(c.Project, d.DataPoint)]; moves {
				d.Audience = m.audience
			}
			o, err := upsert(c.Project, d, version)
			if err != nil {
				return nil, err
			}
			p.upserts = append(p.upserts, o)
		}
	}
	return p, nil
}

func upsert(project uuid.UUID, d recallindex.Document, version int64) (operation, error) {
	document, err := encodeDocument(project, d)
	if err != nil {
		return operation{}, err
	}
	return operation{id: identifier(project, d.Key), routing: project.String(), document: document, version: version}, nil
}

// termsChunk is the most terms of a query that searches for documents.
const termsChunk = 10_000

// deleteScopes deletes the documents of scopes that the page does not replace.
func (x *Index) deleteScopes(ctx context.Context, g generation, p *page) error {
	return inChunks(p.scopes, termsChunk, func(scopes []string) error {
		return x.deleteAll(ctx, g, anyOf("s", scopes), func(h hit) (o operation, some bool, err error) {
			if _, replaced := p.written[h.ID]; replaced {
				return operation{}, false, nil
			}
			project, k, err := parseIdentifier(h.ID)
			s := recallindex.Scope{DataPoint: k.DataPoint, Part: k.Part(), Revision: k.Revision}
			return operation{id: h.ID, routing: h.Routing, version: p.scopes[scope(project, s)]}, true, err
		})
	})
}

// deleteAll deletes the documents of a query for which there is an operation, in rounds as large as a
// search can be.
func (x *Index) deleteAll(
	ctx context.Context, g generation, query map[string]any, operationOf func(hit) (o operation, some bool, err error),
) error {
	size := x.options.limits.scan
	return x.rounds(ctx, g, size, func() (found, made int, err error) {
		hits, err := x.scan(ctx, g, map[string]any{"query": query, "size": size})
		if err != nil {
			return 0, 0, err
		}
		var operations []operation
		for _, h := range hits {
			o, some, err := operationOf(h)
			if err != nil {
				return 0, 0, err
			}
			if some {
				operations = append(operations, o)
			}
		}
		made, err = x.bulk(ctx, g, operations)
		return len(hits), made, err
	})
}

// rounds repeats a round of a search and writes until it finds less than a search returns, or changes
// nothing more: what is left then is newer.
func (x *Index) rounds(ctx context.Context, g generation, size int, round func() (found, made int, err error)) error {
	for {
		found, made, err := round()
		if err != nil || found < size || made == 0 {
			return err
		}
		if err := x.refresh(ctx, g); err != nil {
			return err
		}
	}
}

// movesChunk is the most data points of a query for documents to move.
const movesChunk = 256

// move writes the documents of moved data points again, but for those that the page wrote or deleted.
func (x *Index) move(ctx context.Context, g generation, p *page) error {
	size := x.options.limits.rewrite
	return inChunks(p.moves, movesChunk, func(points []string) error {
		query := p.toMove(points)
		return x.rounds(ctx, g, size, func() (found, made int, err error) {
			hits, err := x.scan(ctx, g, map[string]any{"query": query, "size": size, "docvalue_fields": recordField})
			if err != nil {
				return 0, 0, err
			}
			operations, err := p.rewrite(hits)
			if err != nil {
				return 0, 0, err
			}
			made, err = x.bulk(ctx, g, operations)
			return len(hits), made, err
		})
	})
}

// toMove is the query for documents of data points that have another audience.
func (p *page) toMove(points []string) map[string]any {
	some := make([]map[string]any, len(points))
	for i, d := range points {
		some[i] = map[string]any{"bool": map[string]any{
			"filter":   map[string]any{"term": map[string]any{"d": d}},
			"must_not": map[string]any{"term": map[string]any{"a": p.moves[d].audience.String()}},
		}}
	}
	return map[string]any{"bool": map[string]any{"should": some, "minimum_should_match": 1}}
}

// rewrite returns the operations that give documents the audience of their data point.
func (p *page) rewrite(hits []hit) ([]operation, error) {
	var operations []operation
	for _, h := range hits {
		project, k, err := parseIdentifier(h.ID)
		if err != nil {
			return nil, err
		}
		is, err := h.record()
		if err != nil {
			return nil, err
		}
		s := recallindex.Scope{DataPoint: k.DataPoint, Part: k.Part(), Revision: k.Revision}
		_, deleted := p.scopes[scope(project, s)]
		if _, written := p.written[h.ID]; deleted || written {
			continue
		}
		m := p.moves[dataPoint(project, k.DataPoint)]
		o, err := upsert(project, is.document(m.audience), m.version)
		if err != nil {
			return nil, err
		}
		operations = append(operations, o)
	}
	return operations, nil
}

// hit is a document that a search found.
type hit struct {
	ID      string `json:"_id"`
	Routing string `json:"_routing"`
	Fields  struct {
		Record [][]byte `json:"c"`
	} `json:"fields"`
}

// recordField is the field that a search names to get records.
var recordField = []string{"c"}

func (h hit) record() (record, error) {
	if n := len(h.Fields.Record); n != 1 {
		return record{}, fmt.Errorf("elasticsearch returns %d records of a document", n)
	}
	return parseRecord(h.Fields.Record[0])
}

// hitsAnswer is the answer to a search.
type hitsAnswer struct {
	Hits struct {
		Hits []hit `json:"hits"`
	} `json:"hits"`
}

// scan searches a generation for documents to change, in all shards.
func (x *Index) scan(ctx context.Context, g generation, body map[string]any) ([]hit, error) {
	body["sort"], body["track_total_hits"] = []string{"_doc"}, false
	text, err := json.Marshal(body)
	if err != nil {
		return nil, err
	}
	partial := false
	var answer hitsAnswer
	r := esapi.SearchRequest{
		Index: []string{x.options.writeAlias(g)}, Body: bytes.NewReader(text), AllowPartialSearchResults: &partial,
		FilterPath: []string{"hits.hits._id", "hits.hits._routing", "hits.hits.fields"},
	}
	err = x.client.do(ctx, x.options.limits.write, r, &answer)
	return answer.Hits.Hits, err
}

// refreshRest makes visible what an earlier call may have written before it failed.
func (x *Index) refreshRest(ctx context.Context, g generation) error {
	x.mu.Lock()
	rest := x.unrefreshed
	x.mu.Unlock()
	if !rest {
		return nil
	}
	return x.refresh(ctx, g)
}

func (x *Index) setUnrefreshed(is bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.unrefreshed = is
}

// refresh makes everything that was written visible in all copies.
func (x *Index) refresh(ctx context.Context, g generation) error {
	var answer struct {
		Shards struct {
			Failed int `json:"failed"`
		} `json:"_shards"`
	}
	r := esapi.IndicesRefreshRequest{Index: []string{x.options.writeAlias(g)}}
	if err := x.client.do(ctx, x.options.limits.write, r, &answer); err != nil {
		return err
	}
	if answer.Shards.Failed > 0 {
		return fmt.Errorf("elasticsearch could not refresh %d copies of shards", answer.Shards.Failed)
	}
	return nil
}

// DropProject implements recallindex.Index.
func (x *Index) DropProject(ctx context.Context, project uuid.UUID) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	g := x.current()
	err := x.refreshRest(ctx, g)
	if err == nil {
		err = x.deleteAll(ctx, g, anyOf("g", groups(project)), func(h hit) (operation, bool, error) {
			return operation{id: h.ID, routing: h.Routing}, true, nil
		})
	}
	if err == nil {
		err = x.refresh(ctx, g)
	}
	if err != nil {
		return fmt.Errorf("drop project %s: %w", project, err)
	}
	return nil
}

// anyOf is the query for documents with one of some values in a field.
func anyOf(field string, values []string) map[string]any {
	return map[string]any{"bool": map[string]any{"filter": map[string]any{"terms": map[string]any{field: values}}}}
}

// inChunks calls do with the keys of a map, some at a time.
func inChunks[V any](of map[string]V, size int, do func(keys []string) error) error {
	keys := make([]string, 0, min(len(of), size))
	for k := range of {
		if keys = append(keys, k); len(keys) < size {
			continue
		}
		if err := do(keys); err != nil {
			return err
		}
		keys = keys[:0]
	}
	if len(keys) == 0 {
		return nil
	}
	return do(keys)
}

// operation writes one document, or deletes it if there is none.
type operation struct {
	id, routing string
	document    []byte
	// version is the position of the page; 0 writes whatever is there.
	version int64
}

// action is the line of a bulk request before the document.
type action struct {
	ID          string `json:"_id"`
	Routing     string `json:"routing"`
	Version     int64  `json:"version,omitempty"`
	VersionType string `json:"version_type,omitempty"`
}

func (o operation) encode(to *bytes.Buffer) error {
	a := action{ID: o.id, Routing: o.routing}
	if o.version > 0 {
		a.Version, a.VersionType = o.version, "external_gte"
	}
	kind := "index"
	if o.document == nil {
		kind = "delete"
	}
	line, err := json.Marshal(map[string]action{kind: a})
	if err != nil {
		return err
	}
	to.Write(line)
	to.WriteByte('\n')
	if o.document != nil {
		to.Write(o.document)
		to.WriteByte('\n')
	}
	return nil
}

// parallelBulks is how many bulk requests of a page are under way.
const parallelBulks = 2

// bulk makes operations on different documents, in requests of bounded size. It returns how many it
// made, without those that a newer page forestalled.
func (x *Index) bulk(ctx context.Context, g generation, operations []operation) (made int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(parallelBulks)
	var counts []*int
	for len(operations) > 0 && ctx.Err() == nil {
		n, size := 0, 0
		for n < len(operations) && n < x.options.limits.bulkOps && (n == 0 || size < x.options.limits.bulkBytes) {
			size += len(operations[n].document)
			n++
		}
		part, count := operations[:n], new(int)
		operations, counts = operations[n:], append(counts, count)
		group.Go(func() error {
			return panics.Call(ctx, x.options.Log, "recall index write panicked", func() (err error) {
				*count, err = x.bulkPart(ctx, g, part)
				return err
			})
		})
	}
	err = group.Wait()
	for _, n := range counts {
		made += *n
	}
	return made, err
}

// bulkPart makes the operations of one request. It sends again what Elasticsearch refused for lack of
// room, and everything if it did not answer: to make an operation twice changes nothing.
func (x *Index) bulkPart(ctx context.Context, g generation, operations []operation) (made int, err error) {
	pause := backoff.Backoff{First: x.options.limits.pause, Longest: 40 * x.options.limits.pause}
	for try := 1; ; try++ {
		left, n, err := x.bulkOnce(ctx, g, operations)
		made += n
		switch {
		case err == nil && len(left) == 0:
			return made, nil
		case err == nil:
			operations = left
			x.client.counts.repeated.Add(int64(len(left)))
			err = fmt.Errorf("elasticsearch has no room for %d of the documents of a page", len(left))
		case !isTransient(err) || ctx.Err() != nil || projections.CheckLease(ctx) != nil:
			return made, err
		}
		if try >= x.options.limits.bulkTries {
			return made, err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return made, errors.Join(err, ended)
		}
	}
}

// bulkAnswer is the answer to a bulk request. Each item has one key, the kind of the operation.
type bulkAnswer struct {
	Errors bool `json:"errors"`
	Items  []map[string]struct {
		Status int `json:"status"`
		Error  struct {
			Type string `json:"type"`
		} `json:"error"`
	} `json:"items"`
}

// bulkOnce sends operations, and returns those to send again.
func (x *Index) bulkOnce(
	ctx context.Context, g generation, operations []operation,
) (left []operation, made int, err error) {
	var body bytes.Buffer
	for _, o := range operations {
		if err := o.encode(&body); err != nil {
			return nil, 0, err
		}
	}
	alias, always := x.options.writeAlias(g), true
	var answer bulkAnswer
	r := esapi.BulkRequest{
		Index: alias, Body: &body, RequireAlias: &always,
		FilterPath: []string{"errors", "items.*.status", "items.*.error.type"},
	}
	if err := projections.CheckLease(ctx); err != nil {
		return nil, 0, err
	}
	if err := x.client.do(ctx, x.options.limits.write, r, &answer); err != nil {
		return nil, 0, err
	}
	if len(answer.Items) != len(operations) {
		return nil, 0, fmt.Errorf("elasticsearch answers %d of %d operations", len(answer.Items), len(operations))
	}
	for i, item := range answer.Items {
		for _, is := range item {
			switch {
			case is.Status == http.StatusNotFound && is.Error.Type != "":
				return nil, made, &responseError{status: is.Status, kind: is.Error.Type}
			case is.Status < http.StatusMultipleChoices, is.Status == http.StatusNotFound:
				made++
			case is.Status == http.StatusConflict: // a newer page wrote or deleted it
			case is.Status == http.StatusTooManyRequests, is.Status == http.StatusServiceUnavailable:
				left = append(left, operations[i])
			default:
				return nil, made, &responseError{status: is.Status, kind: is.Error.Type}
			}
		}
	}
	return left, made, nil
}
