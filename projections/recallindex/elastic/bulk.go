package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/internal/panics"
	"github.com/annals-project/annals/projections"
)

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
