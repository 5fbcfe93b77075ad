package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/recallindex"
)

// meta is in the mapping of a generation.
type meta struct {
	Format     string `json:"format"`
	Generation string `json:"generation"`
	// Analysis is the version of the analysis of its documents.
	Analysis int `json:"analysis"`
}

// generation returns the generation of an index, which has the mapping; ok is false if it is of another
// format.
func (m meta) generation(index string) (g generation, ok bool) {
	if _, err := uuid.Parse(m.Generation); err != nil || m.Format != format {
		return g, false
	}
	return generation{index: index, id: m.Generation, analysis: m.Analysis}, true
}

// inUse returns the generation in use.
func (x *Index) inUse(ctx context.Context) (g generation, ok bool, err error) {
	return x.named(ctx, x.options.live())
}

// named returns the generation that an alias names; ok is false if there is none of this format.
func (x *Index) named(ctx context.Context, alias string) (g generation, ok bool, err error) {
	var found map[string]struct {
		Mappings struct {
			Meta meta `json:"_meta"`
		} `json:"mappings"`
	}
	r := esapi.IndicesGetMappingRequest{Index: []string{alias}}
	if err := x.client.do(ctx, x.options.limits.admin, r, &found); isMissing(err) {
		return g, false, nil
	} else if err != nil {
		return g, false, err
	}
	if len(found) > 1 {
		return g, false, fmt.Errorf("alias %s names %d indexes, want one: remove the wrong ones", alias, len(found))
	}
	for index, is := range found {
		if g, ok = is.Mappings.Meta.generation(index); ok {
			return g, true, nil
		}
	}
	return g, false, nil
}

// all returns the indexes of the generations of this format and those before, by name, with their aliases.
func (x *Index) all(ctx context.Context) (map[string][]string, error) {
	var found map[string]struct {
		Aliases map[string]struct{} `json:"aliases"`
	}
	r := esapi.IndicesGetAliasRequest{Index: []string{x.options.Name + "-*"}}
	if err := x.client.do(ctx, x.options.limits.admin, r, &found); err != nil && !isMissing(err) {
		return nil, err
	}
	pattern, err := x.options.indexPattern()
	if err != nil {
		return nil, err
	}
	all := map[string][]string{}
	for name, index := range found {
		if _, ok := numberOf(pattern, name); !ok {
			continue
		}
		all[name] = []string{}
		for alias := range index.Aliases {
			all[name] = append(all[name], alias)
		}
	}
	return all, nil
}

// create creates an empty generation with its alias for writes and those that aliases returns, if not
// nil. ok is false if another process created one meanwhile.
func (x *Index) create(
	ctx context.Context, aliases func(generation) []string,
) (g generation, ok bool, err error) {
	all, err := x.all(ctx)
	if err != nil {
		return g, false, err
	}
	pattern, err := x.options.indexPattern()
	if err != nil {
		return g, false, err
	}
	number := 0
	for name := range all {
		if n, ok := numberOf(pattern, name); ok {
			number = max(number, n)
		}
	}
	g = generation{
		index: x.options.indexName(number + 1), id: uuid.NewString(), analysis: x.options.Analysis,
	}
	named := []string{x.options.writeAlias(g)}
	if aliases != nil {
		named = append(named, aliases(g)...)
	}
	body, err := json.Marshal(x.description(g, named))
	if err != nil {
		return g, false, err
	}
	r := esapi.IndicesCreateRequest{Index: g.index, Body: bytes.NewReader(body)}
	err = x.client.do(ctx, x.options.limits.admin, r, nil)
	if refused, is := errors.AsType[*responseError](err); is && refused.status == http.StatusBadRequest &&
		refused.kind == "resource_already_exists_exception" {
		return g, false, nil
	}
	return g, err == nil, err
}

// gcDeletes is how long a deleted document keeps its version. It is longer than the last request of a
// process that lost its lease can be under way (see projections.CheckLease), with much room for a server
// that lets it wait.
const gcDeletes = 16 * (projections.LeaseTime + writeTime)

var gcDeletesSetting = strconv.FormatInt(int64(gcDeletes/time.Second), 10) + "s"

// keepDeletes gives an index that another program began this gcDeletes.
func (x *Index) keepDeletes(ctx context.Context, index string) error {
	var found map[string]struct {
		Settings struct {
			Index struct {
				GCDeletes string `json:"gc_deletes"`
			} `json:"index"`
		} `json:"settings"`
	}
	get := esapi.IndicesGetSettingsRequest{Index: []string{index}, Name: []string{"index.gc_deletes"}}
	if err := x.client.do(ctx, x.options.limits.admin, get, &found); err != nil {
		return err
	}
	if found[index].Settings.Index.GCDeletes == gcDeletesSetting {
		return nil
	}
	body, err := json.Marshal(map[string]any{"index": map[string]any{"gc_deletes": gcDeletesSetting}})
	if err != nil {
		return err
	}
	put := esapi.IndicesPutSettingsRequest{Index: []string{index}, Body: bytes.NewReader(body)}
	return x.client.do(ctx, x.options.limits.admin, put, nil)
}

// description is settings, mapping and aliases of a generation.
func (x *Index) description(g generation, aliases []string) map[string]any {
	keyword := map[string]any{"type": "keyword", "doc_values": false}
	named := map[string]any{}
	for _, alias := range aliases {
		named[alias] = map[string]any{}
	}
	return map[string]any{
		"aliases": named,
		"settings": map[string]any{"index": map[string]any{
			"number_of_shards": x.options.Shards,
			// A copy as soon as there is a second node for it.
			"auto_expand_replicas": "0-1",
			// Every page is refreshed before it counts as applied.
			"refresh_interval": "-1",
			"gc_deletes":       gcDeletesSetting,
			// Purge rewrites every segment that holds a deleted document.
			"merge": map[string]any{"policy": map[string]any{"expunge_deletes_allowed": 0}},
		}},
		"mappings": map[string]any{
			"dynamic": false, "_meta": meta{Format: format, Generation: g.id, Analysis: g.analysis},
			"_routing": map[string]any{"required": true},
			"_source":  map[string]any{"enabled": false},
			"properties": map[string]any{
				"g": keyword, "d": keyword, "s": keyword, "a": keyword, "l": keyword,
				"at": map[string]any{"type": "long", "doc_values": false},
				"v":  map[string]any{"type": "sparse_vector"},
				"o":  map[string]any{"type": "long", "index": false},
				"c":  map[string]any{"type": "binary", "doc_values": true},
			},
		},
	}
}

// aliasAction is one action of an atomic change of aliases.
type aliasAction map[string]map[string]any

func addAlias(index, alias string) aliasAction {
	return aliasAction{"add": {"index": index, "alias": alias}}
}

// removeAlias fails the whole change if the alias is not there.
func removeAlias(index, alias string) aliasAction {
	return aliasAction{"remove": {"index": index, "alias": alias, "must_exist": true}}
}

// changeAliases makes all the changes or none.
func (x *Index) changeAliases(ctx context.Context, actions []aliasAction) error {
	body, err := json.Marshal(map[string]any{"actions": actions})
	if err != nil {
		return err
	}
	r := esapi.IndicesUpdateAliasesRequest{Body: bytes.NewReader(body)}
	return x.client.do(ctx, x.options.limits.admin, r, nil)
}

// putIntoUse returns the actions that take the aliases by which calls find a generation from all
// others, and give some to a generation. Searches that another process sends to the one before then
// find nothing, and that process looks which one is in use.
func (x *Index) putIntoUse(ctx context.Context, g generation, given []string) ([]aliasAction, error) {
	all, err := x.all(ctx)
	if err != nil {
		return nil, err
	}
	var actions []aliasAction
	for index, has := range all {
		for _, alias := range has {
			if index != g.index && x.options.isUsed(alias) {
				actions = append(actions, removeAlias(index, alias))
			}
		}
	}
	for _, alias := range given {
		actions = append(actions, addAlias(g.index, alias))
	}
	return actions, nil
}

// drop removes indexes; those that are gone already count as removed.
func (x *Index) drop(ctx context.Context, indexes ...string) error {
	if len(indexes) == 0 {
		return nil
	}
	missing := true
	r := esapi.IndicesDeleteRequest{Index: indexes, IgnoreUnavailable: &missing}
	return x.client.do(ctx, x.options.limits.admin, r, nil)
}

// dropOthers removes all generations but those with a wanted alias.
func (x *Index) dropOthers(ctx context.Context, wanted ...string) error {
	all, err := x.all(ctx)
	if err != nil {
		return err
	}
	var others []string
	for index, aliases := range all {
		if !slices.ContainsFunc(aliases, func(alias string) bool { return slices.Contains(wanted, alias) }) {
			others = append(others, index)
		}
	}
	return x.drop(ctx, others...)
}

// Reset implements recallindex.Index.
func (x *Index) Reset(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	if err := x.reset(ctx); err != nil {
		return fmt.Errorf("reset recall index: %w", err)
	}
	return nil
}

func (x *Index) reset(ctx context.Context) error {
	g, ok, err := x.create(ctx, nil)
	if err == nil && !ok {
		err = errors.New("another process creates a generation")
	}
	if err != nil {
		return err
	}
	actions, err := x.putIntoUse(ctx, g, x.newAliases(g))
	if err != nil {
		return err
	}
	if err := x.changeAliases(ctx, actions); err != nil {
		return err
	}
	x.use(g)
	return x.dropOthers(ctx, x.options.live(), x.options.next())
}

// Check implements recallindex.Shared.
func (x *Index) Check(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	g := x.current()
	if _, ok, err := x.named(ctx, x.options.writeAlias(g)); ok || err != nil {
		return err
	}
	if err := x.lost(ctx, g); x.current() == g {
		return err
	}
	return nil
}

// Publish implements recallindex.Shared. It does nothing if the generation answers already.
func (x *Index) Publish(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	g := x.current()
	if published, ok, err := x.named(ctx, x.options.readAlias(g)); err != nil || ok && published == g {
		return err
	}
	live := x.options.live()
	return x.changeAliases(ctx, []aliasAction{
		removeAlias(g.index, live), addAlias(g.index, live), addAlias(g.index, x.options.readAlias(g)),
	})
}

// errReplaced reports a write to a generation that is not there any more.
var errReplaced = errors.New("the generation of the recall index is gone")

// lost decides what to do when the generation of a write does not exist: if another process replaced
// it, nothing; otherwise it begins an empty one, which the caller of Generation notices.
func (x *Index) lost(ctx context.Context, g generation) error {
	if x.isShadow {
		return fmt.Errorf("%w: shadow %s is gone", recallindex.ErrDamaged, g.index)
	}
	x.replacing.Lock()
	defer x.replacing.Unlock()
	if x.current() != g {
		return errReplaced
	}
	if live, ok, err := x.inUse(ctx); err != nil || ok && live != g {
		return errors.Join(errReplaced, err)
	}
	x.options.Log.ErrorContext(ctx, "recall index is gone from Elasticsearch, it will be built from the log",
		"index", g.index)
	return errors.Join(errReplaced, x.reset(ctx))
}

// NewShadow implements recallindex.Rebuildable.
func (x *Index) NewShadow(ctx context.Context) (recallindex.Index, error) {
	if err := x.Discard(ctx); err != nil {
		return nil, err
	}
	if err := x.beginCall(ctx); err != nil {
		return nil, err
	}
	defer x.endCall()
	g, ok, err := x.create(ctx, func(generation) []string { return []string{x.options.next()} })
	if err == nil && !ok {
		err = errors.New("another process creates a generation")
	}
	if err != nil {
		return nil, fmt.Errorf("begin shadow of recall index: %w", err)
	}
	return x.shadow(g), nil
}

// shadow returns the Index of a generation that is built.
func (x *Index) shadow(g generation) *Index {
	next := &Index{client: x.client, options: x.options, isShadow: true, generation: g, searching: g, unrefreshed: true}
	x.mu.Lock()
	defer x.mu.Unlock()
	x.next = next
	return next
}

// ResumeShadow implements recallindex.Rebuildable.
func (x *Index) ResumeShadow(ctx context.Context, target string) (recallindex.Index, bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return nil, false, err
	}
	defer x.endCall()
	x.closeNext()
	g, ok, err := x.named(ctx, x.options.next())
	if err != nil {
		return nil, false, fmt.Errorf("resume shadow of recall index: %w", err)
	}
	if !ok || g.String() != target {
		return nil, false, nil
	}
	return x.shadow(g), true, nil
}

// closeNext closes the shadow, if there is one.
func (x *Index) closeNext() {
	x.mu.Lock()
	next := x.next
	x.next = nil
	x.mu.Unlock()
	if next != nil {
		_ = next.Close() // it never fails
	}
}

// Promote implements recallindex.Rebuildable. If another process promoted the generation, this one
// uses it from now on.
func (x *Index) Promote(ctx context.Context, target string) (bool, error) {
	if err := x.beginCall(ctx); err != nil {
		return false, err
	}
	defer x.endCall()
	// The end of a rebuild and the next lease may promote one generation at the same time.
	x.replacing.Lock()
	defer x.replacing.Unlock()
	live, ok, err := x.inUse(ctx)
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	if ok && live.String() == target {
		x.adopt(live)
		return true, nil
	}
	next, ok, err := x.named(ctx, x.options.next())
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	if !ok || next.String() != target {
		return false, nil
	}
	actions, err := x.putIntoUse(ctx, next, x.options.inUse(next))
	if err == nil {
		err = x.changeAliases(ctx, append(actions, removeAlias(next.index, x.options.next())))
	}
	if err != nil {
		return false, fmt.Errorf("promote recall index: %w", err)
	}
	x.adopt(next)
	if err := x.dropOthers(ctx, x.options.live()); err != nil {
		x.options.Log.WarnContext(ctx, "removal of old recall index generation failed, the next rebuild retries", "err", err)
	}
	return true, nil
}

// adopt uses a generation, and closes the shadow that it was.
func (x *Index) adopt(g generation) {
	x.mu.Lock()
	next := x.next
	if next != nil && next.generation == g {
		x.next = nil
	} else {
		next = nil
	}
	x.searching = g
	if x.generation != g {
		x.generation, x.unrefreshed = g, true
	}
	x.mu.Unlock()
	if next != nil {
		_ = next.Close() // it never fails
	}
}

// Discard implements recallindex.Rebuildable.
func (x *Index) Discard(ctx context.Context) error {
	if err := x.beginCall(ctx); err != nil {
		return err
	}
	defer x.endCall()
	x.closeNext()
	if err := x.dropOthers(ctx, x.options.live()); err != nil {
		return fmt.Errorf("discard shadow of recall index: %w", err)
	}
	return nil
}
