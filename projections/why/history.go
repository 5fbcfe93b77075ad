package why

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"golang.org/x/sync/errgroup"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/person"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/internal/auth"
)

// The bounds of one page.
const (
	// HistoryPageSize is the most events of a page.
	HistoryPageSize = 50
	// MaxHistoryProjects is the most projects of which Management reads the events.
	MaxHistoryProjects = 50
	// maxScanned and maxBytes bound what is read of a stream for a page, which may then be shorter.
	maxScanned = 1000
	maxBytes   = 4 << 20
	// maxChunk is the most events of one read. A read is small until the events turn out to be.
	minChunk, maxChunk = 8, 128
	smallChunk         = 64 << 10
	parallel           = 8
)

// Event is an event of the log, as people read it.
type Event struct {
	At        time.Time `json:"at"`
	Name      string    `json:"name"` // "project.key-created"
	By        Principal `json:"by"`
	RequestID uuid.UUID `json:"requestId,omitzero"`
	Fields    []Field   `json:"fields"`

	position eventstore.Position
}

// Principal is who caused an event. Kind is "person", "key", "management-key", "webhook" or part of the service.
type Principal struct {
	Kind string `json:"kind"`
	ID   string `json:"id,omitempty"`
	// Name is the address of a person, or the name of a key. It is person.RemovedName for an erased person.
	Name string `json:"name,omitempty"`
}

// Field is a value of an event. ID is that of the person, key or project that Value names, "" for others.
type Field struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	ID    string `json:"id,omitempty"`
}

// HistoryPage is some events, the newest first.
type HistoryPage struct {
	Events []Event `json:"events"`
	// Next is the cursor of the page after, "" if there is none.
	Next string `json:"next,omitempty"`
	// IsErased reports that the events left the log with the thing.
	IsErased bool `json:"isErased,omitempty"`
	// IsCut reports that older events of some project are left out: the history of that project has them.
	IsCut bool `json:"isCut,omitempty"`
}

// Thing is what has a history: a stream, or the events of it that name one id or have one name.
type Thing struct {
	stream, field, id string
	// event is the name of the events, without a version, "" for all.
	event string
	// creation is what has the first event, nil if the stream has it.
	creation *Thing
}

func part(stream, field, id string) Thing { return Thing{stream: stream, field: field, id: id} }

// OfOrganization is the management of an organization.
func OfOrganization(id uuid.UUID) Thing { return Thing{stream: stream.Name(stream.Organization, id)} }

// OfMember is a member of an organization.
func OfMember(organization, person uuid.UUID) Thing {
	return part(stream.Name(stream.Organization, organization), "memberId", person.String())
}

// OfProject is the management of a project. Management leaves out the creation, which is in the history of its
// organization.
func OfProject(id uuid.UUID) Thing {
	created := part(stream.Registry, "projectId", id.String())
	return Thing{stream: stream.Name(stream.Project, id), creation: &created}
}

// OfCaps is the caps of a project.
func OfCaps(project uuid.UUID) Thing {
	return Thing{stream: stream.Name(stream.Project, project), event: "project.caps-set"}
}

// OfReads is whether the reads of a project are recorded.
func OfReads(project uuid.UUID) Thing {
	return Thing{stream: stream.Name(stream.Project, project), event: "project.reads-set"}
}

// OfKey is a key of a project.
func OfKey(project, id uuid.UUID) Thing {
	return part(stream.Name(stream.Project, project), "keyId", id.String())
}

// OfWebhook is a webhook of a project.
func OfWebhook(project uuid.UUID, id string) Thing {
	return part(stream.Name(stream.Project, project), "webhookId", id)
}

// OfDataPoint is a data point by its source id.
func OfDataPoint(p auth.Project, sourceID string) Thing {
	return Thing{stream: stream.Name(stream.DataPoint, stream.DataPointID(p.Namespace, sourceID))}
}

// OfIdentity is the record of an identity.
func OfIdentity(p auth.Project, identity string) Thing {
	return Thing{stream: stream.Name(stream.Identity, stream.IdentityID(p.Namespace, identity))}
}

// OfAudience is an audience by its id, which is not its slug.
func OfAudience(project, id uuid.UUID) Thing {
	return part(stream.Name(stream.Audiences, project), "audienceId", id.String())
}

// names finds the names of people, keys and projects.
type names interface {
	// Names returns addresses of people, names of keys and slugs of projects. Who is removed is not in it.
	Names(ctx context.Context, ids []uuid.UUID) (map[uuid.UUID]string, error)
}

// streamReader is the part of eventstore.Store that reads one stream.
type streamReader interface {
	Read(
		ctx context.Context, stream string, from eventstore.Revision, direction eventstore.Direction, limit int,
	) ([]eventstore.Recorded, error)
}

// Histories reads histories. The caller decides who may read which.
type Histories struct {
	Log   streamReader
	Names names
}

// Of reads a page of the history of a thing. before is "" for the newest page, or the cursor of one. Its fault is
// invalid-request, for another cursor.
func (q Histories) Of(ctx context.Context, t Thing, before string) (HistoryPage, error) {
	from := eventstore.EndOfStream
	if before != "" {
		n, err := pageCursor(before)
		if err != nil {
			return HistoryPage{}, err
		}
		from = eventstore.Revision(n) - 1
	}
	events, next, _, err := q.scan(ctx, t, from, math.MaxInt64)
	if errors.Is(err, eventstore.ErrDeleted) {
		return HistoryPage{Events: []Event{}, IsErased: true}, nil
	}
	if err != nil {
		return HistoryPage{}, err
	}
	page := HistoryPage{Events: events}
	if next > 0 {
		page.Next = strconv.FormatInt(int64(next), 10)
	} else if t.creation != nil {
		created, _, _, err := q.scan(ctx, *t.creation, eventstore.EndOfStream, math.MaxInt64)
		if err != nil {
			return HistoryPage{}, err
		}
		page.Events = append(page.Events, created...)
	}
	return page, q.name(ctx, page.Events)
}

// Latest returns the newest events of a thing.
func (q Histories) Latest(ctx context.Context, t Thing, most int) ([]Event, error) {
	page, err := q.Of(ctx, t, "")
	return page.Events[:min(len(page.Events), most)], err
}

// Management reads a page of what happened to an organization and to the first MaxProjects of some of its projects.
func (q Histories) Management(
	ctx context.Context, organization uuid.UUID, projects []uuid.UUID, before string,
) (HistoryPage, error) {
	end := int64(math.MaxInt64)
	if before != "" {
		n, err := pageCursor(before)
		if err != nil {
			return HistoryPage{}, err
		}
		end = n
	}
	things := []Thing{OfOrganization(organization), part(stream.Registry, "organizationId", organization.String())}
	for _, id := range projects[:min(len(projects), MaxHistoryProjects)] {
		things = append(things, OfProject(id))
	}
	found, more, cut := make([][]Event, len(things)), make([]bool, len(things)), make([]bool, len(things))
	group, scanCtx := errgroup.WithContext(ctx)
	group.SetLimit(parallel)
	for i, t := range things {
		group.Go(func() error {
			events, next, isCut, err := q.scan(scanCtx, t, eventstore.EndOfStream, end)
			found[i], more[i], cut[i] = events, next > 0 && !isCut, isCut
			return err
		})
	}
	if err := group.Wait(); err != nil {
		return HistoryPage{}, err
	}
	events := slices.Concat(found...)
	slices.SortFunc(events, func(a, b Event) int { return cmp.Compare(b.position, a.position) })
	page := HistoryPage{Events: events[:min(len(events), HistoryPageSize)], IsCut: slices.Contains(cut, true)}
	if n := len(page.Events); n > 0 && (len(events) > n || slices.Contains(more, true)) {
		page.Next = strconv.FormatUint(uint64(page.Events[n-1].position), 10)
	}
	return page, q.name(ctx, page.Events)
}

func pageCursor(before string) (int64, error) {
	n, err := strconv.ParseInt(before, 10, 64)
	if err != nil || n < 1 {
		return 0, fault.New(fault.Invalid, fault.CodeInvalidRequest, "there is no such page; begin at the first one")
	}
	return n, nil
}

// scan reads the events of a thing before a position, backwards from a revision: at most PageSize, and what maxScanned
// and maxBytes allow: then cut is true. next is the revision before which more may be, 0 for none.
func (q Histories) scan(
	ctx context.Context, t Thing, from eventstore.Revision, end int64,
) (events []Event, next eventstore.Revision, cut bool, err error) {
	events = []Event{}
	for chunk, scanned, size := minChunk, 0, 0; ; {
		records, err := q.Log.Read(ctx, t.stream, from, eventstore.Backwards, chunk)
		if err != nil {
			return nil, 0, false, fmt.Errorf("read history: %w", err)
		}
		read := 0
		for _, r := range records {
			from, read = r.Revision-1, read+len(r.Data)
			if int64(r.Position) < end { //nolint:gosec // positions are below it
				if e, is := eventOf(t, r); is {
					events = append(events, e)
				}
			}
			if len(events) == HistoryPageSize {
				return events, r.Revision, false, nil
			}
		}
		scanned, size = scanned+len(records), size+read
		switch {
		case len(records) < chunk || from < 0:
			return events, 0, false, nil
		case scanned >= maxScanned || size >= maxBytes:
			return events, from + 1, true, nil
		case read < smallChunk:
			chunk = min(2*chunk, maxChunk)
		}
	}
}

// name fills in the names of people, keys and projects.
func (q Histories) name(ctx context.Context, events []Event) error {
	var ids []uuid.UUID
	add := func(text string) {
		if id, err := uuid.Parse(text); err == nil {
			ids = append(ids, id)
		}
	}
	for _, e := range events {
		add(e.By.ID)
		for _, f := range e.Fields {
			add(f.ID)
		}
	}
	if len(ids) == 0 {
		return nil
	}
	names, err := q.Names.Names(ctx, ids)
	if err != nil {
		return err
	}
	of := func(kind, text string) string {
		id, err := uuid.Parse(text)
		switch name := names[id]; {
		case err != nil:
			return ""
		case name == "" && kind == "person":
			return person.RemovedName
		default:
			return name
		}
	}
	for i := range events {
		e := &events[i]
		e.By.Name = of(e.By.Kind, e.By.ID)
		for j := range e.Fields {
			if f := &e.Fields[j]; f.ID != "" {
				f.Value = cmp.Or(of(f.Name, f.ID), f.Value)
			}
		}
	}
	return nil
}

// principalOf reads the principal of an event (auth.Principal.Name).
func principalOf(name string) Principal {
	kind, id, _ := strings.Cut(name, ":")
	return Principal{Kind: kind, ID: id}
}
