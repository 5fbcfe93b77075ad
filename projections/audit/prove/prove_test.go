package prove

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/audit/proof"
	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/domain/stream"
)

// story is a log with two sends, an erasure and a read.
type story struct {
	*fixture
	single, batch, deletion uuid.UUID
	tea, milk               uuid.UUID
	reads                   []reads.Record
}

func newStory(t *testing.T) *story {
	s := &story{fixture: newFixture(t), single: uuid.New(), batch: uuid.New()}
	s.rotate(s.here)
	s.rotate(s.there)
	s.tea = s.send(s.here, s.single, 0, 1, "tea", 1)
	s.send(s.there, uuid.New(), 0, 1, "tea", 1)
	s.milk = stream.DataPointID(s.here.namespace, "milk")
	name := stream.Name(stream.Ingestion, s.batch)
	s.commit = uint64(s.append(name, &ingestion.Accepted{
		ProjectID: s.here.project, RequestID: uuid.New(), AcceptedAt: noon, Month: "2026-11",
		Items: []ingestion.Item{{DataPoint: s.tea, Bytes: 9, CreditTenths: 10}, {DataPoint: s.milk, Decided: -1, Bytes: 9, CreditTenths: 10}},
	}).Position)
	s.send(s.here, s.batch, 0, 2, "tea", 2)
	s.send(s.here, s.batch, 1, 2, "milk", 1)
	s.append(name, &ingestion.FannedOut{ProjectID: s.here.project, Outcomes: []ingestion.Outcome{
		{Outcome: ingestion.Updated, Revision: 2}, {Outcome: ingestion.Created, Revision: 1},
	}})
	s.deletion = s.erase(s.here, "milk")
	for range 5 {
		s.reads = append(s.reads, reads.Record{ID: uuid.New(), At: noon, Way: reads.Recall, Shown: []reads.Shown{}})
	}
	s.read(s.here, s.reads[:2]...)
	s.read(s.here, s.reads[2:]...)
	s.sign(s.here, 1)
	s.sign(s.there, 1)
	return s
}

// prove makes the files of a request, and checks each against the key of the organization.
func (s *story) prove(r Request) (names []string, stated []proof.Statement) {
	s.t.Helper()
	if r.Organization == uuid.Nil {
		r.Organization = s.here.id
	}
	files, err := s.Prove(s.t.Context(), r)
	if err != nil {
		s.t.Fatalf("%s %s: %v", r.Kind, r.ID, err)
	}
	for _, f := range files {
		p, err := proof.Parse(f.Data)
		if err != nil {
			s.t.Fatal(err)
		}
		said, err := p.Verify(s.policy(s.here))
		if err != nil {
			s.t.Errorf("%s: %v", f.Name, err)
		}
		names, stated = append(names, f.Name), append(stated, said)
	}
	return names, stated
}

func TestProve(t *testing.T) {
	s := newStory(t)
	tea, milk := stream.Name(stream.DataPoint, s.tea), stream.Name(stream.DataPoint, s.milk)
	read := stream.ReadsName(s.here.project, "2026-11-03")
	for _, c := range []struct {
		Request
		want []string
	}{
		{Request{Kind: Source, Project: "notes", ID: "tea"}, []string{
			tea + ".0", tea + ".1", stream.Name(stream.Memory, s.tea) + ".0", stream.Name(stream.Memory, s.tea) + ".1",
		}},
		{Request{Kind: Source, Project: "notes", ID: "milk"}, []string{
			milk + ".0", milk + ".1", stream.Name(stream.Memory, s.milk) + ".0",
		}},
		{Request{Kind: Ingestion, ID: s.single.String()}, []string{tea + ".0"}},
		{Request{Kind: Ingestion, ID: s.batch.String()}, []string{
			tea + ".1", milk + ".0", milk + ".1", stream.Name(stream.Memory, s.milk) + ".0",
			stream.Name(stream.Ingestion, s.batch) + ".0", stream.Name(stream.Ingestion, s.batch) + ".1",
		}},
		{Request{Kind: Deletion, ID: s.deletion.String()}, []string{
			milk + ".0", milk + ".1", stream.Name(stream.Deletion, s.deletion) + ".0", stream.Name(stream.Memory, s.milk) + ".0",
		}},
		{Request{Kind: Read, ID: s.reads[1].ID.String()}, []string{read + ".0"}},
		{Request{Kind: Read, ID: s.reads[4].ID.String()}, []string{read + ".2"}},
	} {
		names, stated := s.prove(c.Request)
		want := slices.Clone(c.want)
		for i := range want {
			want[i] += proof.Ending
		}
		slices.Sort(want)
		slices.Sort(names)
		if diff := cmp.Diff(want, names); diff != "" {
			t.Errorf("%s %s: files (-want +got):\n%s", c.Kind, c.ID, diff)
		}
		for i, said := range stated {
			if (said.Data != nil) != (c.Kind == Read) || (said.Kept == nil) != (said.Fields != nil) ||
				said.Kept != nil && !strings.HasSuffix(said.Kept.Stream, s.milk.String()) {
				t.Errorf("%s %s: file %d states %+v", c.Kind, c.ID, i, said)
			}
		}
	}
}

// A file with salt holds the event, and comes with the event that kept what has left the log.
func TestProve_WithSalt(t *testing.T) {
	s := newStory(t)
	names, _ := s.prove(Request{Kind: Source, Project: "notes", ID: "milk", WithSalt: true})
	keeper := stream.Name(stream.Deletion, s.deletion) + ".0" + proof.WithSalt + proof.Ending
	if !slices.Contains(names, keeper) || len(names) != 4 {
		t.Errorf("files %q, want %s among them", names, keeper)
	}
	_, stated := s.prove(Request{Kind: Ingestion, ID: s.single.String(), WithSalt: true})
	if len(stated) != 1 || !strings.Contains(string(stated[0].Data), "tea at five") {
		t.Errorf("states %+v", stated)
	}
}

// Of a read record the record itself is proved.
func TestProve_ReadRecord(t *testing.T) {
	s := newStory(t)
	for _, r := range s.reads {
		want, err := r.Encode()
		if err != nil {
			t.Fatal(err)
		}
		if _, stated := s.prove(Request{Kind: Read, ID: r.ID.String()}); string(stated[0].Read) != string(want) {
			t.Errorf("states %s, want %s", stated[0].Read, want)
		}
	}
}

// What belongs to another organization or project is not found, as what nobody has.
func TestProve_NotFound(t *testing.T) {
	s := newStory(t)
	for _, r := range []Request{
		{Kind: Source, Project: "notes", ID: "juice"},
		{Kind: Source, Project: "other", ID: "tea"},
		{Kind: Source, ID: "tea"},
		{Kind: Source, Project: "notes", ID: "milk", Organization: s.there.id},
		{Kind: Ingestion, ID: s.single.String(), Organization: s.there.id},
		{Kind: Ingestion, ID: s.single.String(), Project: "other"},
		{Kind: Ingestion, ID: s.deletion.String()},
		{Kind: Deletion, ID: s.deletion.String(), Organization: s.there.id},
		{Kind: Deletion, ID: "milk"},
		{Kind: Read, ID: s.reads[0].ID.String(), Organization: s.there.id},
		{Kind: Read, ID: uuid.NewString()},
		{Kind: "other", ID: s.single.String()},
	} {
		if r.Organization == uuid.Nil {
			r.Organization = s.here.id
		}
		files, err := s.Prove(t.Context(), r)
		if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.NotFound {
			t.Errorf("%+v: %d files, %v", r, len(files), err)
		}
	}
}

// What was stored after the last checkpoint is not proved yet.
func TestProve_NotCoveredYet(t *testing.T) {
	s := newStory(t)
	late := uuid.New()
	s.send(s.here, late, 0, 1, "late", 1)
	r := Request{Organization: s.here.id, Kind: Ingestion, ID: late.String()}
	_, err := s.Prove(t.Context(), r)
	if f, is := errors.AsType[*fault.Error](err); !is || f.Kind != fault.Unavailable {
		t.Errorf("%v", err)
	}
	s.sign(s.here, 1)
	if names, _ := s.prove(r); len(names) != 1 {
		t.Errorf("files %q", names)
	}
}
