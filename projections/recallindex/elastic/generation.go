package elastic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"

	"github.com/elastic/go-elasticsearch/v8/esapi"
	"github.com/google/uuid"

	"github.com/annals-project/annals/projections/recallindex"
)

// formatVersion is part of the name of every generation. Raise it with every change of the analysis
// of text, of the mapping or of the ids: an index of another format is not used.
const formatVersion = "2"

// generation is one build of the index. Its zero value is none.
type generation struct {
	// index is the name of the index, id the one in its mapping.
	index, id string
}

func (g generation) String() string { return "elasticsearch:" + g.index + "/" + g.id }

// The aliases; see doc.go.
func (o Options) live() string                   { return o.Name }
func (o Options) read() string                   { return o.Name + "-read" }
func (o Options) next() string                   { return o.Name + "-next" }
func (o Options) writeAlias(g generation) string { return o.Name + "-w-" + g.id }
func (o Options) indexName(number int) string {
	return fmt.Sprintf("%s-%s-%06d", o.Name, formatVersion, number)
}

func (o Options) indexPattern() (*regexp.Regexp, error) {
	return regexp.Compile(`^` + regexp.QuoteMeta(o.Name) + `-[0-9]+-([0-9]{6,})$`)
}

// inUse are the aliases of a complete generation in use.
func (o Options) inUse() []string { return []string{o.live(), o.read()} }

// newAliases are those of an empty generation in use.
func (x *Index) newAliases() []string {
	if x.options.HoldNew {
		return []string{x.options.live()}
	}
	return x.options.inUse()
}

// meta is in the mapping of a generation.
type meta struct {
	Format     string `json:"format"`
	Generation string `json:"generation"`
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
		if _, err := uuid.Parse(is.Mappings.Meta.Generation); err == nil && is.Mappings.Meta.Format == formatVersion {
			return generation{index: index, id: is.Mappings.Meta.Generation}, true, nil
		}
	}
	return g, false, nil
}

// all returns the generations' indexes, by name, with their aliases.
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
		if !pattern.MatchString(name) {
			continue
		}
		all[name] = []string{}
		for alias := range index.Aliases {
			all[name] = append(all[name], alias)
		}
	}
	return all, nil
}

// create creates an empty generation with its alias for writes and others. ok is false if another
// process created one meanwhile.
func (x *Index) create(ctx context.Context, aliases ...string) (g generation, ok bool, err error) {
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
		if n, err := strconv.Atoi(pattern.FindStringSubmatch(name)[1]); err == nil {
			number = max(number, n)
		}
	}
	g = generation{index: x.options.indexName(number + 1), id: uuid.NewString()}
	body, err := json.Marshal(x.description(g, append(aliases, x.options.writeAlias(g))))
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
			// A deleted document keeps its version for longer than a write of a process that lost its
			// lease can be under way.
			"gc_deletes": "10m",
			// Purge rewrites every segment that holds a deleted document.
			"merge": map[string]any{"policy": map[string]any{"expunge_deletes_allowed": 0}},
		}},
		"mappings": map[string]any{
			"dynamic": false, "_meta": meta{Format: formatVersion, Generation: g.id},
			"_routing": map[string]any{"required": true},
			"_source":  map[string]any{"enabled": false},
			"properties": map[string]any{
				"g": keyword, "d": keyword, "s": keyword, "a": keyword, "l": keyword,
				"at": map[string]any{"type": "long", "doc_values": false},
				"v":  map[string]any{"type": "sparse_vector"},
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

// moveAliases returns the actions that take aliases from every other index, and give those of them
// that a generation gets.
func (x *Index) moveAliases(ctx context.Context, g generation, taken, given []string) ([]aliasAction, error) {
	all, err := x.all(ctx)
	if err != nil {
		return nil, err
	}
	var actions []aliasAction
	for index, has := range all {
		for _, alias := range has {
			if index != g.index && slices.Contains(taken, alias) {
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
	g, ok, err := x.create(ctx)
	if err == nil && !ok {
		err = errors.New("another process creates a generation")
	}
	if err != nil {
		return err
	}
	actions, err := x.moveAliases(ctx, g, x.options.inUse(), x.newAliases())
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
	if published, ok, err := x.named(ctx, x.options.read()); err != nil || ok && published == g {
		return err
	}
	return x.changeAliases(ctx, []aliasAction{
		removeAlias(g.index, x.options.live()), addAlias(g.index, x.options.live()), addAlias(g.index, x.options.read()),
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
	if live, ok, err := x.named(ctx, x.options.live()); err != nil || ok && live != g {
		return errors.Join(errReplaced, err)
	}
	x.options.Log.ErrorContext(ctx, "recall index is gone from Elasticsearch, it will be built from the log",
		"index", g.index)
	return errors.Join(errReplaced, x.reset(ctx))
}
