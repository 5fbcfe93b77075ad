package elastic

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
)

const (
	// purgeWait bounds how long a purge waits until Elasticsearch lets go of deleted documents, which
	// it keeps for copies that it may have to bring up to date. It looks every 30 s whether they are.
	purgeWait = 3 * time.Minute
	purgePoll = 500 * time.Millisecond
)

// errRetained reports documents that a copy of a shard may still need.
var errRetained = errors.New("elasticsearch retains deleted documents for a copy of a shard that is not up to date")

// Purge implements recallindex.Index within what Elasticsearch can promise: no file of any copy that
// is assigned now holds the documents. It does not reach a copy on a node that is away, or snapshots.
//
// A flush commits the deletes and empties the translogs. Elasticsearch keeps deleted documents in the
// segments until all copies have that commit, and notices it within 30 s. Then every segment with
// deleted documents is rewritten, and another flush removes the old files.
func (x *Index) Purge(ctx context.Context) (parts int, err error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	g, ok := x.current(), true
	if !x.isShadow {
		// Another process may have put a generation into use.
		g, ok, err = x.inUse(ctx)
	}
	if err == nil && !ok {
		err = errReplaced
	}
	if err == nil {
		parts, err = x.purge(ctx, g)
	}
	if err != nil {
		return 0, fmt.Errorf("purge recall index: %w", err)
	}
	return parts, nil
}

func (x *Index) purge(ctx context.Context, g generation) (parts int, err error) {
	if err := x.flush(ctx, g); err != nil {
		return 0, err
	}
	before, err := x.shards(ctx, g)
	if err != nil {
		return 0, err
	}
	upTo := map[string]int64{}
	for shard, copies := range before {
		upTo[shard] = -1 // of an empty shard
		for _, c := range copies {
			upTo[shard] = max(upTo[shard], c.SeqNo.Max)
			if c.Docs.Deleted > 0 {
				parts++
			}
		}
	}
	if parts == 0 {
		return 0, nil
	}
	if err := x.awaitRelease(ctx, g, upTo); err != nil {
		return 0, err
	}
	only := true
	r := esapi.IndicesForcemergeRequest{Index: []string{x.options.writeAlias(g)}, OnlyExpungeDeletes: &only}
	if err := x.client.do(ctx, x.options.limits.merge, r, nil); err != nil {
		return 0, err
	}
	if err := x.flush(ctx, g); err != nil {
		return 0, err
	}
	after, err := x.shards(ctx, g)
	if err != nil {
		return 0, err
	}
	for shard, copies := range after {
		for _, c := range copies {
			if c.SeqNo.Max == upTo[shard] && c.Docs.Deleted > 0 {
				return 0, errRetained
			}
		}
	}
	return parts, nil
}

// shardCopy is what the statistics say about a copy of a shard.
type shardCopy struct {
	Docs struct {
		Deleted int `json:"deleted"`
	} `json:"docs"`
	SeqNo struct {
		Max int64 `json:"max_seq_no"`
	} `json:"seq_no"`
	Retention struct {
		Leases []struct {
			From int64 `json:"retaining_seq_no"`
		} `json:"leases"`
	} `json:"retention_leases"`
}

// retains reports whether the copy keeps operations up to a number.
func (c shardCopy) retains(upTo int64) bool {
	for _, l := range c.Retention.Leases {
		if l.From <= upTo {
			return true
		}
	}
	return false
}

// shards returns the copies of each shard.
func (x *Index) shards(ctx context.Context, g generation) (map[string][]shardCopy, error) {
	var answer struct {
		Indices map[string]struct {
			Shards map[string][]shardCopy `json:"shards"`
		} `json:"indices"`
	}
	r := esapi.IndicesStatsRequest{Index: []string{x.options.writeAlias(g)}, Metric: []string{"docs"}, Level: "shards"}
	if err := x.client.do(ctx, x.options.limits.admin, r, &answer); err != nil {
		return nil, err
	}
	return answer.Indices[g.index].Shards, nil
}

// awaitRelease waits until no copy retains operations up to the given ones.
func (x *Index) awaitRelease(ctx context.Context, g generation, upTo map[string]int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, purgeWait, errRetained)
	defer cancel()
	tick := time.NewTicker(purgePoll)
	defer tick.Stop()
	for {
		shards, err := x.shards(ctx, g)
		if err != nil {
			return err
		}
		retained := false
		for shard, copies := range shards {
			for _, c := range copies {
				retained = retained || c.retains(upTo[shard])
			}
		}
		if !retained {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// flush commits what is in memory, and empties the translogs.
func (x *Index) flush(ctx context.Context, g generation) error {
	always := true
	r := esapi.IndicesFlushRequest{Index: []string{x.options.writeAlias(g)}, Force: &always, WaitIfOngoing: &always}
	return x.client.do(ctx, x.options.limits.merge, r, nil)
}
