package directory_test

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/google/uuid"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	_ "github.com/annals-project/annals/internal/seedtest" // a fixed seed
)

var (
	drawnNames = []string{"ana", "ben", "cid", "dee"}
	drawnSlugs = []string{"a", "b", "c"}
	drawnKeys  = []string{"team", "<ro\"le>"}
	drawnWords = []string{"red", "blue", "<&\"\u2028"}
)

// history is a random log as the write side may write it, with races between bulk writes and single
// writes.
type history struct {
	*writer
	t *rapid.T
	// cut is the stream revision up to which the stream of each record is truncated.
	cut map[string]eventstore.Revision
	// stages are the blobs of fanned-out bulk writes, which may be missing.
	stages []string
	bulks  []*drawnBulk
	slugs  map[string]uuid.UUID // of live audiences
	n      int
}

// drawnBulk is a committed bulk write with its open rows.
type drawnBulk struct {
	name    string
	event   *identity.BulkAccepted
	commit  eventstore.Position
	rows    map[string]traits
	decided map[string]eventstore.Revision
}

func drawHistory(t *rapid.T) *history {
	h := &history{writer: newWriter("there"), t: t, cut: map[string]eventstore.Revision{}, slugs: map[string]uuid.UUID{}}
	for range rapid.IntRange(1, 40).Draw(t, "steps") {
		h.step()
	}
	return h
}

func (h *history) pick(what string, n int) int { return rapid.IntRange(0, n-1).Draw(h.t, what) }

func (h *history) name() string { return rapid.SampledFrom(drawnNames).Draw(h.t, "name") }

func (h *history) traits() traits {
	return rapid.MapOfN(rapid.SampledFrom(drawnKeys), rapid.SampledFrom(drawnWords), 0, 2).Draw(h.t, "traits")
}

func (h *history) step() {
	switch name := h.name(); h.pick("what", 14) {
	case 0:
		h.of(name, &identity.Appeared{ProjectID: here.ID, Identity: name, Origin: identity.OriginIngest, AppearedAt: h.now()})
	case 1, 2:
		decided, _ := h.decided(name)
		h.of(name, &identity.TraitsReplaced{
			ProjectID: here.ID,
			Record:    identity.Replace(decided, name, h.traitsIn(h.traits()), identity.OriginAPI, h.now()),
		})
	case 3, 4:
		h.patch(name)
	case 5:
		h.end(name)
	case 6, 7:
		h.commitBulk()
	case 8, 9, 10:
		h.fanOut()
	case 11, 12:
		h.audience()
	default:
		h.seen(name)
	}
}

func (h *history) of(name string, e event.Event) eventstore.Position {
	return h.Append(stream.Name(stream.Identity, who(name)), e)
}

// facts returns the events of the stream of a record.
func (h *history) facts(name string) (facts []eventstore.DecodedEvent) {
	for _, f := range h.Facts {
		if f.Stream == stream.Name(stream.Identity, who(name)) {
			facts = append(facts, f)
		}
	}
	return facts
}

// decided returns the state that a decision reads: the stream of a record without open bulk rows.
func (h *history) decided(name string) (record *identity.Record, last eventstore.Revision) {
	last = eventstore.NoStream
	for _, f := range h.facts(name) {
		record, last = identity.Evolve(record, f.Event), f.Revision
	}
	return record, last
}

// traitsIn puts traits into the event or into a blob.
func (h *history) traitsIn(t traits) identity.Traits {
	if h.pick("in a blob", 4) > 0 {
		return identity.Traits{Inline: t}
	}
	h.n++
	return identity.Traits{Blob: h.blobs.write(fmt.Sprint("traits ", h.n), t)}
}

func (h *history) read(t identity.Traits) traits {
	if t.Blob == nil {
		return t.Inline
	}
	return decode[traits](h.blobs[t.Blob.Stream])
}

func (h *history) patch(name string) {
	decided, _ := h.decided(name)
	patch := identity.Patch{
		Set:     h.traits(),
		Removed: rapid.SliceOfNDistinct(rapid.SampledFrom(drawnKeys), 0, 1, rapid.ID[string]).Draw(h.t, "removed"),
	}
	for _, key := range patch.Removed {
		delete(patch.Set, key)
	}
	var before traits
	if decided != nil {
		before = h.read(decided.Traits)
	}
	record := identity.Replace(decided, name, h.traitsIn(patch.Apply(before)), identity.OriginAPI, h.now())
	if h.pick("patch in a blob", 3) == 0 {
		changes := map[string]*string{}
		for key, value := range patch.Set {
			changes[key] = &value
		}
		for _, key := range patch.Removed {
			changes[key] = nil
		}
		h.n++
		patch = identity.Patch{Blob: h.blobs.write(fmt.Sprint("patch ", h.n), changes)}
	}
	h.of(name, &identity.TraitsMerged{ProjectID: here.ID, Patch: patch, Record: record})
}

// end removes a record, and sometimes clears the removal.
func (h *history) end(name string) {
	decided, last := h.decided(name)
	facts := h.facts(name)
	if decided != nil {
		h.of(name, &identity.Removed{ProjectID: here.ID, RemovedAt: h.now()})
		return
	}
	for _, f := range slices.Backward(facts) {
		if _, removed := f.Event.(*identity.Removed); removed && f.Revision == last {
			h.of(name, &identity.Cleared{ProjectID: here.ID, Removal: int64(f.Revision), ClearedAt: h.now()})
			h.cut[f.Stream] = f.Revision
		}
	}
}

func (h *history) commitBulk() {
	names := rapid.SliceOfNDistinct(rapid.SampledFrom(drawnNames), 1, 3, rapid.ID[string]).Draw(h.t, "rows")
	b := &drawnBulk{
		name: fmt.Sprint("bulk ", len(h.bulks), " of ", len(h.Facts)), rows: map[string]traits{},
		decided: map[string]eventstore.Revision{},
	}
	for _, name := range names {
		b.rows[name] = h.traits()
		_, b.decided[name] = h.decided(name)
	}
	rows := maps.Clone(b.rows)
	b.commit = h.bulk(b.name, rows)
	b.event = h.Facts[len(h.Facts)-1].Event.(*identity.BulkAccepted)
	h.bulks = append(h.bulks, b)
}

// fanOut writes one row of an open bulk write, or closes it if all are written.
func (h *history) fanOut() {
	if len(h.bulks) == 0 {
		return
	}
	n := h.pick("bulk", len(h.bulks))
	b := h.bulks[n]
	if len(b.rows) == 0 {
		h.fannedOut(b.name)
		h.stages = append(h.stages, b.event.Rows.Stream)
		h.bulks = slices.Delete(h.bulks, n, n+1)
		return
	}
	name := rapid.SampledFrom(slices.Sorted(maps.Keys(b.rows))).Draw(h.t, "row")
	h.rowOf(b, name)
	delete(b.rows, name)
}

// rowOf writes a row as commands.applyRow does.
func (h *history) rowOf(b *drawnBulk, name string) {
	var base *identity.Record
	var stored []identity.Effect
	for _, f := range h.facts(name) {
		if f.Revision <= b.decided[name] {
			base = identity.Evolve(base, f.Event)
			continue
		}
		effect := identity.Effect{At: uint64(f.Position), Event: f.Event}
		if row, is := f.Event.(*identity.BulkRowApplied); is {
			effect.At = row.Commit
		}
		stored = append(stored, effect)
	}
	place := identity.ResolveRow(base, stored, uint64(b.commit))
	under := b.rows[name]
	for _, patch := range place.Patches {
		if patch.Blob != nil {
			changes := decode[map[string]*string](h.blobs[patch.Blob.Stream])
			patch = identity.Patch{Set: traits{}}
			for key, value := range changes {
				if value == nil {
					patch.Removed = append(patch.Removed, key)
				} else {
					patch.Set[key] = *value
				}
			}
		}
		under = patch.Apply(under)
	}
	record := place.Record(identity.Row{Identity: name, Traits: b.rows[name]}, h.traitsIn(under), b.event.Origin,
		b.event.AcceptedAt)
	h.bulkRow(b.name, name, b.commit, record)
}

func (h *history) audience() {
	slug := rapid.SampledFrom(drawnSlugs).Draw(h.t, "slug")
	audienceID, live := h.slugs[slug]
	at := h.now()
	put := &audience.Put{ProjectID: here.ID, Slug: slug, Name: slug, CreatedAt: at, PutAt: at}
	switch what := h.pick("audience", 6); {
	case what == 0 && live:
		h.Append(stream.Name(stream.Audiences, here.ID),
			&audience.Removed{ProjectID: here.ID, AudienceID: audienceID, RemovedAt: at})
		delete(h.slugs, slug)
		return
	case what == 1 && live:
		h.Append(stream.Name(stream.Audiences, here.ID),
			&audience.Recomputed{ProjectID: here.ID, AudienceID: audienceID, RecomputedAt: at})
		return
	case what <= 3:
		put.Kind = audience.KindFixed
		list := whos(rapid.SliceOfNDistinct(rapid.SampledFrom(drawnNames), 0, 4, rapid.ID[string]).Draw(h.t, "members")...)
		if put.Members = list; h.pick("list in a blob", 2) == 0 {
			var raw []byte
			for _, member := range list {
				raw = append(raw, member[:]...)
			}
			h.n++
			put.Members, put.MembersBlob = nil, h.blobs.write(fmt.Sprint("list ", h.n), raw)
		}
	default:
		put.Kind = audience.KindRule
		rule := &audience.Rule{
			Match: rapid.SampledFrom([]audience.Match{audience.MatchAll, audience.MatchAny}).Draw(h.t, "match"),
		}
		for range 1 + h.pick("conditions", 2) {
			c := audience.Condition{
				Trait:    rapid.SampledFrom(drawnKeys).Draw(h.t, "trait"),
				Operator: rapid.SampledFrom(audience.Operators()).Draw(h.t, "operator"), Values: []string{},
			}
			if c.Operator != audience.Exists && c.Operator != audience.DoesNotExist {
				c.Values = append(c.Values, rapid.SampledFrom(drawnWords).Draw(h.t, "value"))
			}
			rule.Conditions = append(rule.Conditions, c)
		}
		if put.Rule = rule; h.pick("rule in a blob", 2) == 0 {
			h.n++
			put.Rule, put.RuleBlob = nil, h.blobs.write(fmt.Sprint("rule ", h.n), rule)
		}
	}
	if !live {
		audienceID = id(fmt.Sprint(slug, " of ", len(h.Facts)))
		h.slugs[slug] = audienceID
	}
	put.AudienceID = audienceID
	h.Append(stream.Name(stream.Audiences, here.ID), put)
}

// seen stores a data point of an author, retained facts of one, or a recall.
func (h *history) seen(name string) {
	at := noon.Add(time.Duration(h.pick("at", 3600)) * time.Second)
	point := id(fmt.Sprint("point ", len(h.Facts)))
	switch h.pick("seen", 4) {
	case 0:
		h.Append(stream.Name(stream.DataPoint, point), &datapoint.Moved{
			Send: datapoint.Send{ProjectID: here.ID, AcceptedAt: at}, Sender: datapoint.Sender{AuthorID: who(name)},
		})
	case 1:
		h.Append(stream.Name(stream.DataPoint, point),
			&datapoint.RevisionAccepted{Send: datapoint.Send{ProjectID: here.ID, AcceptedAt: at}, Author: name})
	case 2:
		h.Append(stream.Name(stream.Deletion, point), &deletion.FactsKept{
			ProjectID: here.ID, DataPoint: point,
			Facts: []deletion.RetainedFact{{AcceptedAt: at, AuthorID: who(name)}, {AcceptedAt: at}},
		})
	default:
		h.Append(stream.UsageName(here.ID, "2026-11"), &metering.Charged{
			ProjectID: here.ID, Month: "2026-11", FlushID: point,
			Seen: []metering.Seen{{IdentityID: who(name), At: at}},
		})
	}
}

// withoutErased draws a log without some or all of the truncated events, and without some blobs
// that may be missing by then.
func (h *history) withoutErased() ([]eventstore.DecodedEvent, blobs) {
	all := rapid.Bool().Draw(h.t, "all erased")
	var left []eventstore.DecodedEvent
	gone := map[uuid.UUID]bool{}
	for _, f := range h.Facts {
		if cut, ok := h.cut[f.Stream]; ok && f.Revision < cut {
			gone[stream.Owner(f.Stream)] = true
			if all || rapid.Bool().Draw(h.t, "erased") {
				continue
			}
		}
		left = append(left, f)
	}
	kept := maps.Clone(h.blobs)
	for _, stage := range h.stages {
		if all || rapid.Bool().Draw(h.t, "stage gone") {
			delete(kept, stage)
		}
	}
	for _, f := range h.Facts {
		cut, ok := h.cut[f.Stream]
		if !ok || f.Revision >= cut {
			continue
		}
		for _, ref := range refsOf(f.Event) {
			if all || rapid.Bool().Draw(h.t, "blob gone") {
				delete(kept, ref)
			}
		}
	}
	return left, kept
}

// refsOf lists the streams of the blobs that an event of a record refers to.
func refsOf(e event.Event) (refs []string) {
	add := func(r *identity.Record) {
		if r != nil && r.Traits.Blob != nil {
			refs = append(refs, r.Traits.Blob.Stream)
		}
	}
	switch e := e.(type) {
	case *identity.TraitsReplaced:
		add(&e.Record)
	case *identity.TraitsMerged:
		add(&e.Record)
		if e.Patch.Blob != nil {
			refs = append(refs, e.Patch.Blob.Stream)
		}
	case *identity.BulkRowApplied:
		add(e.Record)
	}
	return refs
}
