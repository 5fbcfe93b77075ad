package e2e

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/projections/recall"
)

// directoryModel is what a worker's own identities, audiences and data points are, by what was
// acknowledged. It is never changed: what a call makes of it is another one.
type directoryModel struct {
	peopleModel
	// points are the data points by id, each with the audience that it is scoped to, nil for the
	// project.
	points map[string]*audienceModel
}

func newDirectoryModel() directoryModel {
	return directoryModel{newPeople(), map[string]*audienceModel{}}
}

func (t directoryModel) clone() directoryModel {
	people, of := t.peopleModel.clone()
	points := map[string]*audienceModel{}
	for id, a := range t.points {
		points[id] = of(a)
	}
	return directoryModel{people, points}
}

// view is what the reads show of a directory.
type view struct {
	// People are the records of the list, Alone those that were read one by one, with the slugs that
	// they belong to.
	People, Alone map[string]string
	// Marked are those that the list finds by a trait, by its value.
	Marked map[string]string
	// Audiences say who belongs, and how many.
	Audiences map[string]string
	// Recalled are the data points that recall shows, by who asks.
	Recalled map[string]string
}

func newView() view {
	return view{
		People: map[string]string{}, Alone: map[string]string{}, Marked: map[string]string{}, Audiences: map[string]string{},
		Recalled: map[string]string{},
	}
}

func (t directoryModel) view(everybody, cities []string) view {
	v := newView()
	for person, record := range t.people {
		v.People[person] = shownTraits(record)
		v.Alone[person] = fmt.Sprint(v.People[person], " ", t.belongs(person))
	}
	for _, city := range cities {
		v.Marked[city] = some(everybody, func(person string) bool { return t.people[person]["city"] == city })
	}
	for slug, a := range t.audiences {
		members := t.members(a)
		if a.rule == nil {
			v.Audiences[slug] = shownAudience("fixed", len(members), strings.Join(members, " "))
		} else {
			v.Audiences[slug] = shownAudience("rule "+a.rule.Conditions[0].Values[0], len(members), "")
		}
	}
	for _, person := range everybody {
		v.Recalled[person] = some(
			slices.Sorted(maps.Keys(t.points)), func(id string) bool { return t.reaches(person, t.points[id]) },
		)
	}
	return v
}

func shownAudience(kind string, members int, names string) string {
	return fmt.Sprintf("%s, %d: %s", kind, members, names)
}

func shownTraits(traits map[string]string) string {
	var b strings.Builder
	for _, key := range slices.Sorted(maps.Keys(traits)) {
		fmt.Fprintf(&b, "%s=%s ", key, traits[key])
	}
	return b.String()
}

// some are those of a list that are wanted, sorted.
func some(list []string, want func(string) bool) string {
	var found []string
	for _, one := range list {
		if want(one) {
			found = append(found, one)
		}
	}
	slices.Sort(found)
	return strings.Join(found, " ")
}

// accessModel is what a walk believes of a project: who is known, who may read what, and what was
// said.
type accessModel struct {
	peopleModel
	project auth.Project
	// notes may be scoped to an audience that has ended.
	notes map[string]*note
}

// note is a live data point as it was accepted last, and what was read in it.
type note struct {
	fields
	id, author string
	audience   *audienceModel // nil for project-visible
	// had is the audience that each revision had last while it was the newest.
	had      map[int]*audienceModel
	revision int
	send     uuid.UUID
	ordinal  int
	reading  *reading
}

// reading is the newest revision that memory was derived from.
type reading struct {
	revision   int
	occurredAt time.Time
	lines      []memory.Memory
}

func newAccess(project auth.Project) *accessModel {
	return &accessModel{
		peopleModel: newPeople(),
		project:     project,
		notes:       map[string]*note{},
	}
}

func (w *accessModel) dataPoint(id string) uuid.UUID {
	return stream.DataPointID(w.project.Namespace, id)
}

// scoped counts what recall could return of an audience.
func (w *accessModel) scoped(a *audienceModel) (n int64) {
	for _, p := range w.notes {
		if p.audience == a {
			n++
			if p.reading != nil {
				n += int64(len(p.reading.lines))
			}
		}
	}
	return n
}

// line is a memory where it stands.
type line struct {
	memory.Memory
	occurredAt time.Time
	note       *note
}

// readsLines reports whether an identity may read the memories of a note. Memories of an older text
// are for those who reach both what that text had last and what the note has now.
func (w *accessModel) readsLines(name string, p *note) bool {
	if p.reading == nil || !w.reaches(name, p.audience) {
		return false
	}
	return p.reading.revision == p.revision || w.reaches(name, p.had[p.reading.revision])
}

// readable is what somebody may read at a perspective: sources by their ids, lines by theirs.
func (w *accessModel) readable(name string, at time.Time) (map[uuid.UUID]*note, map[uuid.UUID]line) {
	sources, lines := map[uuid.UUID]*note{}, map[uuid.UUID]line{}
	for _, p := range w.notes {
		if !w.reaches(name, p.audience) {
			continue
		}
		if !p.occurredAt.After(at) {
			sources[datapoint.NodeID(w.dataPoint(p.id), p.revision)] = p
		}
		if w.readsLines(name, p) && !p.reading.occurredAt.After(at) {
			for _, m := range p.reading.lines {
				lines[m.ID] = line{m, p.reading.occurredAt, p}
			}
		}
	}
	return sources, lines
}

// supersedes are the later lines on the same among these, the first of them in front.
func supersedes(l line, among map[uuid.UUID]line) []line {
	if l.Kind != memory.Claim || l.Subject == "" {
		return nil
	}
	var all []line
	for _, other := range among {
		if other.Kind == memory.Claim && other.Subject == l.Subject && other.Attribute == l.Attribute && later(other, l) {
			all = append(all, other)
		}
	}
	slices.SortFunc(all, func(a, b line) int {
		if later(b, a) {
			return -1
		}
		return 1
	})
	return all
}

func later(a, b line) bool {
	if !a.occurredAt.Equal(b.occurredAt) {
		return a.occurredAt.After(b.occurredAt)
	}
	return bytes.Compare(a.ID[:], b.ID[:]) > 0
}

// verdict is what a page is found to be.
type verdict struct {
	faults, missing []string
	shown           map[uuid.UUID]bool
	// replaced are the lines that the page calls superseded.
	replaced map[uuid.UUID]bool
}

// wrong is what the page should not say, "" for nothing; lacking is what it should, once the index knows
// what else somebody may read.
func (v *verdict) wrong() string   { return strings.Join(v.faults, "\n") }
func (v *verdict) lacking() string { return strings.Join(v.missing, "\n") }

func (v *verdict) fault(format string, args ...any) {
	v.faults = append(v.faults, fmt.Sprintf(format, args...))
}

// judge holds a page against the model: it must hold every source that the reader may read and no
// other, and of memories only what the reader may read, each with its own words, and superseded by
// what the reader may read.
func (w *accessModel) judge(page recall.Response, name string, at time.Time) *verdict {
	sources, lines := w.readable(name, at)
	v := &verdict{shown: map[uuid.UUID]bool{}, replaced: map[uuid.UUID]bool{}}
	for _, r := range page.Results {
		if v.shown[r.ID] {
			v.fault("%s stands twice", r.ID)
		}
		v.shown[r.ID] = true
		switch {
		case len(r.Sources) != 1:
			v.fault("%s has %d sources", r.ID, len(r.Sources))
		case r.Artifact.Kind == recall.KindSource:
			v.judgeSource(r, sources[r.ID])
		default:
			l, theirs := lines[r.ID]
			v.judgeLine(r, l, theirs, supersedes(l, lines))
		}
	}
	for id, p := range sources {
		if !v.shown[id] {
			v.missing = append(v.missing, fmt.Sprintf("source %s is missing: %q", p.id, p.content))
		}
	}
	return v
}

func (v *verdict) judgeSource(r recall.Result, p *note) {
	source, label := r.Sources[0], ""
	if source.Label != nil {
		label = *source.Label
	}
	switch {
	case p == nil:
		v.fault("a source that is not theirs: %s %q", source.SourceID, r.Content)
	case r.Content != p.content,
		source.SourceID != p.id,
		label != p.label,
		!r.OccurredAt.Equal(p.occurredAt),
		len(source.Excerpts) != 0,
		r.Artifact.SupersededAt != nil:
		v.fault("source %s: %+v, want %+v", p.id, r, *p)
	}
}

func (v *verdict) judgeLine(r recall.Result, l line, theirs bool, by []line) {
	source, got := r.Sources[0], r.Artifact.SupersededAt
	isGot := func(other line) bool { return got != nil && got.Equal(other.occurredAt) }
	switch {
	case !theirs:
		v.fault("a memory that is not theirs: %s of %s: %q with %q", r.ID, source.SourceID, r.Content, source.Excerpts)
	case r.Content != l.Content,
		r.Artifact.Kind != l.Kind,
		source.SourceID != l.note.id,
		!r.OccurredAt.Equal(l.occurredAt),
		!slices.Equal(source.Excerpts, []string{l.Excerpt}):
		v.fault("memory %s: %+v, want %+v", r.ID, r, l.Memory)
	case got != nil && !slices.ContainsFunc(by, isGot):
		v.fault("memory %q of %s: superseded at %v, which is not by %+v", r.Content, source.SourceID, got, by)
	case len(by) > 0 && !isGot(by[0]):
		v.missing = append(v.missing, fmt.Sprintf("memory %q of %s: superseded at %v, want %v",
			r.Content, source.SourceID, got, by[0].occurredAt))
	}
	v.replaced[r.ID] = got != nil
}
