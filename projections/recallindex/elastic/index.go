package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"

	"github.com/annals-project/annals/eventstore/backoff"
	"github.com/annals-project/annals/projections/recallindex"
)

// Index implements recallindex.Index in an Elasticsearch. Several processes may use the same.
type Index struct {
	client  *client
	options Options

	// calls is held for reading by every call, for writing by Close.
	calls  sync.RWMutex
	closed bool // guarded by calls

	// isShadow reports that the generation is a shadow, built for the Index whose next this is.
	isShadow bool

	// replacing is held while the generation in use is replaced.
	replacing sync.Mutex

	mu         sync.Mutex
	generation generation
	// searching is the generation that searches go to: another process may have put it into use.
	searching generation
	next      *Index
	// unrefreshed is true while documents may be written that no search sees.
	unrefreshed bool
}

var _ recallindex.Shared = (*Index)(nil)

// Check returns an error unless the Elasticsearch of the options answers and can be used. It asks once, and writes
// nothing.
func Check(ctx context.Context, options Options) (err error) {
	options = options.withDefaults()
	c, err := newClient(options)
	if err != nil {
		return fmt.Errorf("recall index: %w", err)
	}
	defer func() { err = errors.Join(err, c.close()) }()
	return c.checkVersion(ctx, options.limits.admin)
}

// Open connects to the server, and opens the generation in use, or begins one. A server that does
// not answer is retried for ConnectTime. Errors hold no secrets.
func Open(ctx context.Context, options Options) (*Index, error) {
	options = options.withDefaults()
	if _, err := options.Validate(); err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	c, err := newClient(options)
	if err != nil {
		return nil, fmt.Errorf("recall index: %w", err)
	}
	x := &Index{client: c, options: options, unrefreshed: true}
	if err := x.connect(ctx); err != nil {
		return nil, fmt.Errorf("recall index: %w", errors.Join(err, c.close()))
	}
	return x, nil
}

// connect retries until the server has answered.
func (x *Index) connect(ctx context.Context) error {
	deadline := time.Now().Add(x.options.limits.connect)
	var cause error
	for pause := (backoff.Backoff{First: 10 * x.options.limits.pause, Longest: breakerPause}); ; {
		err := x.client.checkVersion(ctx, x.options.limits.admin)
		if err == nil {
			err = x.begin(ctx)
		}
		if errors.Is(err, ErrUnavailable) && cause != nil {
			err = cause // of the requests that were sent
		}
		cause = err
		if err == nil || !isTransient(err) || time.Now().After(deadline) {
			return err
		}
		if ended := pause.Wait(ctx); ended != nil {
			return errors.Join(err, ended)
		}
	}
}

// probeTime bounds Probe.
const probeTime = 10 * time.Second

// Probe returns why the server cannot be used at the moment, nil if it can.
func (x *Index) Probe(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	return x.client.checkVersion(ctx, probeTime)
}

// begin finds the generation in use, or creates one.
func (x *Index) begin(ctx context.Context) error {
	for {
		g, ok, err := x.inUse(ctx)
		if err != nil {
			return err
		}
		if ok {
			if err := x.keepDeletes(ctx, g.index); err != nil {
				return err
			}
			x.use(g)
			return nil
		}
		all, err := x.all(ctx)
		if err != nil {
			return err
		}
		for index, aliases := range all {
			if slices.ContainsFunc(aliases, x.options.isUsed) {
				x.options.Log.WarnContext(ctx, "recall index is of another format, beginning an empty one", "index", index)
				return x.reset(ctx)
			}
		}
		// The name of the index decides which of several processes creates the first one.
		if g, ok, err = x.create(ctx, x.newAliases); err != nil {
			return err
		}
		if ok {
			x.use(g)
			return nil
		}
	}
}

// use makes a generation the one of this process.
func (x *Index) use(g generation) {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.generation, x.searching, x.unrefreshed = g, g, true
}

func (x *Index) current() generation {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.generation
}

// Generation implements recallindex.Index.
func (x *Index) Generation() string { return x.current().String() }

// Analysis implements recallindex.Index.
func (x *Index) Analysis() int { return x.searched().analysis }

// searched returns the generation that searches go to.
func (x *Index) searched() generation {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.searching
}

// lookAgain makes searches go to the generation in use. found is false if they did already.
func (x *Index) lookAgain(ctx context.Context, before generation) (found bool, err error) {
	if x.isShadow {
		return false, nil
	}
	g, ok, err := x.inUse(ctx)
	if err != nil || !ok {
		return false, err
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if x.searching == before {
		x.searching = g
	}
	return x.searching != before, nil
}

// Count implements recallindex.Index.
func (x *Index) Count(ctx context.Context, project uuid.UUID) (int, error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	body, err := json.Marshal(map[string]any{"query": anyOf("g", groups(project))})
	if err != nil {
		return 0, err
	}
	return x.count(ctx, esapi.CountRequest{Body: bytes.NewReader(body), Routing: []string{project.String()}})
}

// Total implements recallindex.Index.
func (x *Index) Total(ctx context.Context) (int, error) {
	if err := x.beginCall(ctx); err != nil {
		return 0, err
	}
	defer x.endCall()
	return x.count(ctx, esapi.CountRequest{})
}

// count counts documents in all shards, or fails.
func (x *Index) count(ctx context.Context, r esapi.CountRequest) (int, error) {
	g, ok, err := x.current(), true, error(nil)
	if !x.isShadow {
		// Another process may have put a generation into use, which need not answer searches yet.
		g, ok, err = x.inUse(ctx)
	}
	if err == nil && !ok {
		err = errReplaced
	}
	if err != nil {
		return 0, fmt.Errorf("count recall index: %w", err)
	}
	r.Index = []string{x.options.writeAlias(g)}
	var answer struct {
		Count  int `json:"count"`
		Shards struct {
			Failed int `json:"failed"`
		} `json:"_shards"`
	}
	if err := x.client.do(ctx, x.options.limits.search, r, &answer); err != nil {
		return 0, fmt.Errorf("count recall index: %w", err)
	}
	if answer.Shards.Failed > 0 {
		return 0, fmt.Errorf("count recall index: elasticsearch could not count %d shards", answer.Shards.Failed)
	}
	return answer.Count, nil
}

// Losses implements recallindex.Index. Elasticsearch loses a shard with all its copies or nothing; an
// index that is gone begins a new generation.
func (x *Index) Losses() []recallindex.Loss { return nil }

// Refilled implements recallindex.Index.
func (x *Index) Refilled(ctx context.Context, loss recallindex.Loss, _ *recallindex.Cursor) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	return fmt.Errorf("%w: nothing is lost of %s", recallindex.ErrDamaged, loss.Part)
}

// Close implements recallindex.Index.
func (x *Index) Close() error {
	x.calls.Lock()
	defer x.calls.Unlock()
	var err error
	if !x.closed && !x.isShadow {
		err = x.client.close()
	}
	x.closed = true
	return err
}

// beginCall begins a call; if it returns nil, the caller must call endCall.
func (x *Index) beginCall(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	x.calls.RLock()
	if x.closed {
		x.calls.RUnlock()
		return recallindex.ErrClosed
	}
	return nil
}

func (x *Index) endCall() { x.calls.RUnlock() }

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
