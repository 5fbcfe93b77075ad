package export

import (
	"bufio"
	"cmp"
	"context"
	"encoding/json"
	"io"
	"time"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/projection"
	"github.com/annals-project/annals/internal/requestlog"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/reads"
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
			ctx context.Context, project auth.Project, f reads.Filter, after string, most int,
		) (list []reads.Read, next string, err error)
		Texts(ctx context.Context, project auth.Project, request uuid.UUID, part int) ([]reads.Text, bool, error)
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
		DataPoints []reads.Text `json:"dataPoints"`
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
		list, next, err := s.Reads.List(ctx, project, reads.Filter{Identity: c.author}, after, readCount)
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
