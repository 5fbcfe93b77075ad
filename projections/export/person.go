package export

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/pgarray"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/directory"
	projectedreads "github.com/annals-project/annals/projections/reads"
)

// PersonRequest names the identity whose copy is written. Organization is a name or an id, "" for any.
type PersonRequest struct {
	Organization string `json:"organization,omitempty"`
	Project      string `json:"project"`
	Identity     string `json:"identity"`
}

// PersonBegan is the beginning of a copy.
type PersonBegan struct {
	Project auth.Project
	AsOf    time.Time
}

// PersonSummary is the last line of a copy: what it has, and what it has not.
type PersonSummary struct {
	Type string `json:"type"`
	// HasRecord reports whether the identity has a record in the directory.
	HasRecord bool `json:"hasRecord"`
	Texts     int  `json:"texts"`
	Memories  int  `json:"memories"`
	Audiences int  `json:"audiences"`
	Reads     int  `json:"reads"`
	// Revisions counts the revisions that others wrote of the same data points, which an erasure takes too.
	Revisions int `json:"revisionsOfOthers"`
	// Naming counts the texts of others that hold all words of the name. MoreNaming is true if there may be more. Both are
	// left out if the texts cannot be searched now.
	Naming     *int `json:"textsOfOthersThatNameThePerson,omitempty"`
	MoreNaming bool `json:"moreTextsOfOthers,omitempty"`
	// NotIncluded are what an erasure removes and the copy has not.
	NotIncluded []Exception `json:"notIncluded"`
}

// Exception is something that a copy has not, and why.
type Exception struct {
	What string `json:"what"`
	Why  string `json:"why"`
	// tables hold it, in schemas of the service. One that ends in an asterisk begins the names of several.
	tables []string
}

// Tables are the tables that hold what the exception is about; an asterisk ends the beginning of several names.
func (e Exception) Tables() []string { return e.tables }

// Copied are the tables with text of people that a copy has.
func Copied() []string {
	return []string{
		"datapoints.data_points", "datapoints.revisions", "memories.memories", "directory.identities",
		"directory.past_traits",
	}
}

// Exceptions are what an erasure of a person removes and the copy has not.
func Exceptions() []Exception {
	return []Exception{
		{
			"calls", "the request log has the bodies and headers of all callers for some weeks; an erasure removes those of the " +
				"whole project", requestlog.TextTables(),
		},
		{
			"derived values", "hashes, vectors and the search index are computed from what is in the copy",
			[]string{"directory.marks", "embeddings.vectors", "history.settings"},
		},
		{
			"revisions of others", "what others wrote of the same data points is theirs, with the memories of it; it is counted",
			nil,
		},
		{
			"former memberships", "the audiences of a time are decided from the traits, lists and rules of then: ask as of a time",
			[]string{"directory.members"},
		},
		{"people of the organization", "members sign in, and are no identities of a project", []string{
			"access.people", "access.joins", "access.offers",
		}},
	}
}

// PersonService writes the copy of a person: all that an identity wrote in a project, its traits and audiences, and
// what was derived from its texts.
type PersonService struct {
	Service
	Directory interface {
		Identity(ctx context.Context, project auth.Project, name string) (directory.Identity, bool, error)
		EachTraits(ctx context.Context, project auth.Project, name string, do func(directory.DatedTraits) error) error
		EachMembership(ctx context.Context, project auth.Project, name string, do func(directory.Judgement) error) error
	}
	// Naming counts the texts of others that name an identity. searched is false if that is not possible now.
	Naming func(ctx context.Context, project auth.Project, identity string) (n int, more, searched bool, err error)
	// Reads are the records of what was shown to who asked as an identity.
	Reads interface {
		List(
			ctx context.Context, project auth.Project, f projectedreads.Filter, after string, most int,
		) (list []projectedreads.Read, next string, err error)
		Texts(ctx context.Context, project auth.Project, request uuid.UUID, part int) ([]projectedreads.Text, bool, error)
	}
}

// BeginPerson begins a copy. Its faults are those of Begin.
func (s PersonService) BeginPerson(ctx context.Context, in PersonRequest) (began PersonBegan, err error) {
	if in.Project == "" || in.Identity == "" {
		return began, fault.New(fault.Invalid, fault.CodeInvalidRequest, "a project and an identity must be named")
	}
	err = s.Head.Await(ctx, projection.Access, projection.DataPoints, projection.Directory, projection.Memories,
		projection.Reads)
	if err != nil {
		return began, err
	}
	project, err := s.Projects.OnlyProject(ctx, in.Organization, in.Project)
	if err != nil {
		return began, err
	}
	began.Project = project.Project
	began.AsOf, err = s.Reader.AsOf(ctx, project.ID, s.Now())
	return began, err
}

// personHead is the first line of a copy.
type personHead struct {
	Type     string `json:"type"`
	Identity string `json:"identity"`
	Project  string `json:"project"`
	AsOf     string `json:"asOf"`
}

// personRecord is the line of the record of an identity, personTraits one of its traits from a time on, personAudience
// one of an audience that it belongs to, and personRead one of what was shown to who asked as it.
type (
	personRecord struct {
		Type       string          `json:"type"`
		Origin     string          `json:"origin"`
		CreatedAt  string          `json:"createdAt"`
		UpdatedAt  string          `json:"updatedAt"`
		LastSeenAt string          `json:"lastSeenAt,omitempty"`
		Traits     json.RawMessage `json:"traits"`
	}
	personTraits struct {
		Type   string          `json:"type"`
		From   string          `json:"from"`
		Traits json.RawMessage `json:"traits"`
	}
	personAudience struct {
		Type  string `json:"type"`
		Slug  string `json:"slug"`
		Name  string `json:"name"`
		Kind  string `json:"kind"`
		Since string `json:"since"`
		Exact bool   `json:"isExact"`
	}
	personRead struct {
		Type    string `json:"type"`
		Request string `json:"requestId"`
		Part    int    `json:"part"`
		At      string `json:"at"`
		Way     string `json:"way"`
		By      string `json:"by"`
		// DataPoints are those whose texts were shown.
		DataPoints []projectedreads.Text `json:"dataPoints"`
	}
)

// WritePerson writes the lines of a copy, and calls mark between them, so that the caller may break it off. Texts are
// in memory a few at a time.
func (s PersonService) WritePerson(
	ctx context.Context, in PersonRequest, began PersonBegan, to io.Writer, mark func() error,
) (sum PersonSummary, err error) {
	lines := &lineWriter{to: bufio.NewWriterSize(to, 64<<10)}
	c := &personCopy{
		run: &run{
			Reader: s.Reader, Selection: Selection{Project: began.Project.ID, AsOf: began.AsOf}, to: lines,
			audiences: map[uuid.UUID]readers{},
		},
		author: in.Identity, mark: mark, sum: PersonSummary{Type: "end", NotIncluded: Exceptions()},
	}
	err = lines.value(personHead{"copy", in.Identity, began.Project.Slug, instant(began.AsOf)})
	for _, part := range []func() error{
		func() error { return s.record(ctx, c, began.Project) },
		func() error { return c.texts(ctx) },
		func() error { return s.reads(ctx, c, began.Project) },
		func() error { return s.naming(ctx, c, began.Project) },
		func() error { return lines.value(c.sum) },
	} {
		if err == nil {
			err = part()
		}
	}
	if err == nil {
		err = lines.to.Flush()
	}
	return c.sum, err
}

// record writes the record with its traits and audiences.
func (s PersonService) record(ctx context.Context, c *personCopy, project auth.Project) error {
	i, has, err := s.Directory.Identity(ctx, project, c.author)
	if err != nil || !has {
		return err
	}
	c.sum.HasRecord = true
	line := personRecord{
		Type: "identity", Origin: i.Origin, CreatedAt: instant(i.CreatedAt), UpdatedAt: instant(i.UpdatedAt),
		Traits: i.Traits,
	}
	if i.LastSeenAt != nil {
		line.LastSeenAt = instant(*i.LastSeenAt)
	}
	if err := c.to.value(line); err != nil {
		return err
	}
	err = s.Directory.EachTraits(ctx, project, c.author, func(t directory.DatedTraits) error {
		return c.to.value(personTraits{"traits", instant(t.From), t.Traits})
	})
	if err != nil {
		return err
	}
	return s.Directory.EachMembership(ctx, project, c.author, func(j directory.Judgement) error {
		c.sum.Audiences++
		a := j.Audience
		return c.to.value(personAudience{"audience", a.Slug, a.Name, string(a.Kind), instant(j.Since), j.Exact})
	})
}

// readCount is how many records are read at once.
const readCount = 100

// reads writes the records of what was shown to who asked as the identity, the newest first.
func (s PersonService) reads(ctx context.Context, c *personCopy, project auth.Project) error {
	for after := ""; ; {
		list, next, err := s.Reads.List(ctx, project, projectedreads.Filter{Identity: c.author}, after, readCount)
		if err != nil {
			return err
		}
		for _, r := range list {
			texts, known, err := s.Reads.Texts(ctx, project, r.ID, r.Part)
			if err != nil {
				return err
			}
			if !known { // its time ended meanwhile
				continue
			}
			by := cmp.Or(r.Name, r.Principal)
			err = c.to.value(personRead{"read", r.ID.String(), r.Part, instant(r.At), r.Way, by, texts})
			if err != nil {
				return err
			}
			c.sum.Reads++
		}
		if err := c.next(); err != nil || next == "" {
			return err
		}
		after = next
	}
}

// naming counts what others wrote about the person.
func (s PersonService) naming(ctx context.Context, c *personCopy, project auth.Project) error {
	n, more, searched, err := s.Naming(ctx, project, c.author)
	if searched {
		c.sum.Naming, c.sum.MoreNaming = &n, more
	}
	return err
}

// revisionCount is how many revisions of a data point are listed at once, markedTexts after how many texts the caller
// is asked.
const (
	revisionCount = 256
	markedTexts   = 64
)

// personCopy is one copy of a person.
type personCopy struct {
	*run
	author string
	mark   func() error
	sum    PersonSummary
}

// personText is a revision that the person wrote.
type personText struct {
	id       uuid.UUID
	sourceID string
	number   int
	newest   bool
	size     int
	// audience is the one while the revision was the newest, nil if unknown.
	audience             *uuid.UUID
	occurredAt, acceptAt time.Time
}

// personTextHead begins the line of a text.
type personTextHead struct {
	Type string `json:"type"`
	head
	Revision int    `json:"revision"`
	IsNewest bool   `json:"isNewest"`
	SentAt   string `json:"sentAt"`
}

// texts writes the texts of the person with what was derived from them, in the order of an export.
func (c *personCopy) texts(ctx context.Context) error {
	for {
		keys, err := c.keys(ctx, c.Selection)
		if err != nil || len(keys) == 0 {
			return err
		}
		c.After = &keys[len(keys)-1].Place
		of, err := c.authored(ctx, keys)
		if err != nil {
			return err
		}
		for _, k := range keys {
			if of[k.id] {
				if err := c.dataPoint(ctx, k); err != nil {
					return err
				}
			}
		}
		if err := c.next(); err != nil {
			return err
		}
	}
}

// next sends what is written, and asks whether to go on.
func (c *personCopy) next() error {
	if err := c.to.to.Flush(); err != nil {
		return err
	}
	return c.mark()
}

// authored returns which of some data points have a revision of the person.
func (c *personCopy) authored(ctx context.Context, keys []key) (map[uuid.UUID]bool, error) {
	rows, err := c.DB.Query(ctx, `select distinct data_point from datapoints.revisions
		where data_point = any($1::uuid[]) and author = $2 and project_id = $3`,
		pgarray.IDs(keys, func(k key) uuid.UUID { return k.id }), c.author, c.Project)
	if err != nil {
		return nil, fmt.Errorf("find the data points of a person: %w", err)
	}
	of := map[uuid.UUID]bool{}
	var id uuid.UUID
	if _, err = pgx.ForEachRow(rows, []any{&id}, func() error { of[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("find the data points of a person: %w", err)
	}
	return of, nil
}

const selectRevisions = `select r.number, r.occurred_at, r.accepted_at, r.author is not distinct from $4,
		case when d.revision = r.number then d.audience else r.audience end, d.revision = r.number,
		coalesce(octet_length(r.content), (r.content_blob->>'size')::bigint, 0)
			+ coalesce(octet_length(r.metadata), (r.metadata_blob->>'size')::bigint, 0)
	from datapoints.revisions r join datapoints.data_points d on d.id = r.data_point
	where r.data_point = $1 and r.number > $2 and r.accepted_at <= $3 order by r.number limit $5`

// dataPoint writes the texts that the person wrote of a data point.
func (c *personCopy) dataPoint(ctx context.Context, k key) error {
	for after := 0; ; {
		rows, err := c.DB.Query(ctx, selectRevisions, k.id, after, c.Selection.AsOf, c.author, revisionCount)
		if err != nil {
			return fmt.Errorf("list revisions: %w", err)
		}
		listed := 0
		var own []personText
		t, is := personText{id: k.id, sourceID: k.SourceID}, false
		_, err = pgx.ForEachRow(rows, []any{&t.number, &t.occurredAt, &t.acceptAt, &is, &t.audience, &t.newest, &t.size},
			func() error {
				listed, after = listed+1, t.number
				if one := t; is {
					own = append(own, one)
				} else {
					c.sum.Revisions++
				}
				return nil
			})
		if err != nil {
			return fmt.Errorf("list revisions: %w", err)
		}
		for _, t := range own {
			if err := c.text(ctx, t); err != nil {
				return err
			}
		}
		if listed < revisionCount {
			return nil
		}
		if err := c.next(); err != nil {
			return err
		}
	}
}

// text writes a text and the memories that were derived from it. Of a data point that was deleted since there is none.
func (c *personCopy) text(ctx context.Context, t personText) error {
	keys := []key{{id: t.id, revision: t.number}}
	found, err := c.Reader.texts(ctx, keys)
	if err == nil {
		err = show(ctx, keys, found)
	}
	if err != nil {
		return err
	}
	p, live := found[t.id]
	if !live {
		return nil
	}
	if live, err = c.load(ctx, p); err != nil || !live {
		return err
	}
	if t.audience != nil {
		if p.readers, err = c.readersOf(ctx, *t.audience, p.author); err != nil {
			return err
		}
	}
	at := Place{t.occurredAt.UTC(), t.sourceID}
	if err := c.to.text(personTextHead{
		"text", headOf(at, p), t.number, t.newest, instant(t.acceptAt),
	}, p); err != nil {
		return err
	}
	if c.sum.Texts++; c.sum.Texts%markedTexts == 0 {
		if err := c.next(); err != nil {
			return err
		}
	}
	return c.memories(ctx, t)
}

// personMemory begins the line of a memory.
type personMemory struct {
	Type         string `json:"type"`
	SourceID     string `json:"sourceId"`
	Revision     int    `json:"revision"`
	Number       int    `json:"number"`
	ID           string `json:"id"`
	Kind         string `json:"kind"`
	OccurredAt   string `json:"occurredAt"`
	ResolvedFrom string `json:"resolvedFrom,omitempty"`
	ResolvedTo   string `json:"resolvedTo,omitempty"`
}

const selectPersonMemories = `select ordinal, id, kind, content, excerpt, occurred_at, resolved_from, resolved_to
	from memories.memories where data_point = $1 and revision = $2 and project_id = $3 and ordinal > $4
	order by ordinal limit $5`

// memories writes the memories of a text.
func (c *personCopy) memories(ctx context.Context, t personText) error {
	for after := -1; ; {
		rows, err := c.DB.Query(ctx, selectPersonMemories, t.id, t.number, c.Project, after, memoryCount)
		if err != nil {
			return fmt.Errorf("read memories: %w", err)
		}
		list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (d derived, err error) {
			return d, row.Scan(&d.number, &d.id, &d.kind, &d.content, &d.excerpt, &d.occurredAt, &d.resolvedFrom, &d.resolvedTo)
		})
		if err != nil {
			return fmt.Errorf("read memories: %w", err)
		}
		for _, d := range list {
			h := personMemory{
				Type: MemoryType, SourceID: t.sourceID, Revision: t.number, Number: d.number, ID: d.id.String(), Kind: d.kind,
				OccurredAt: instant(d.occurredAt), ResolvedFrom: optional(d.resolvedFrom), ResolvedTo: optional(d.resolvedTo),
			}
			if err := readlog.From(ctx).Show(ctx, reads.Export, reads.Shown{Node: d.id}); err != nil {
				return err
			}
			if err := c.to.derived(h, d); err != nil {
				return err
			}
			after = d.number
		}
		if c.sum.Memories += len(list); len(list) < memoryCount {
			return nil
		}
	}
}
