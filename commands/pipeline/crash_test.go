package pipeline

import (
	"errors"
	"fmt"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/commands"
	"github.com/annals-project/annals/commands/engine"
	"github.com/annals-project/annals/commands/identities"
	"github.com/annals-project/annals/commands/ingest"
	"github.com/annals-project/annals/domain/audience"
	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/event"
	"github.com/annals-project/annals/domain/identity"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/memory"
	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/internal/auth"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// scene is one run of an operation, in a project of its own.
type scene struct {
	*harness
	start eventstore.Position
	send  uuid.UUID
}

// operation is something that takes several writes, and what is there before it.
type operation struct {
	name string
	// method is the command of commands.Service that it is, "" for work of the finisher.
	method  string
	prepare func(*scene)
	act     func(*scene, *commands.Service, *Finisher) error
}

// alone are the commands that are one append, decided on the stream that it goes to: a crash
// leaves all of it or nothing.
var alone = []string{
	"CreateProject", "CreateKey", "RevealKey", "RevokeKey", "SetArchived", "DescribeProject", "SetCaps", "SetPlan", "SetSpendCap",
	"GrantCredits", "RotateManagementKey", "DeleteAudience", "RecomputeAudience", "CreateWebhook", "ChangeWebhook",
	"SetWebhookPaused", "RotateWebhookToken", "DeleteWebhook",
	"CheckWebhook", "TryEvent", "SetMemberRole", "PersonLives", "SetProjectAccess", "SetAccess", "SetSecondFactor",
	"SetVisitsKept", "SetAuditorTexts", "SetReads",
	"RecordReset", "FindPerson", "AddressName", "ApproveGrant", "RevokeGrant",
	"ApproveAgent", "DenyAgent", "RevokeAgent", "StopAgent",
	"RetryOf", // is Retry
}

// elsewhere are the commands whose crashes package commands itself goes through: they concern no project.
var elsewhere = []string{
	"CreateOrganization", "PrepareOrganizations", "AddMember", "RemoveMember", "RemovePerson", "RegisterPerson", "ChangeAddress",
	"OfferMembership", "AcceptOffer", "EndOffer",
	"ImportIdentities", // bulk writes one after the other, each of which is in operations
}

func item(id, content string) ingest.DataPoint {
	return ingest.DataPoint{ID: &id, Content: content}
}

var big = strings.Repeat("A text that does not fit into its event. ", 8_000)

func (s *scene) must(err error) {
	s.t.Helper()
	runtest.Must(s.t, err)
}

// ingestBatch sends a batch, which is the last one from then on.
func (s *scene) ingestBatch(items ...ingest.DataPoint) { s.send = s.harness.ingestBatch(items...) }

// remember derives memories of a data point of the last batch, as a worker would; those of one
// whose text is long lie in a blob.
func (s *scene) remember(id string, ordinal int, inBlob bool) {
	s.t.Helper()
	point := s.pointID(id)
	name, meta := stream.Name(stream.DataPoint, point), event.NewMeta("test", time.Now())
	last, _, err := s.log.Last(s.t.Context(), name)
	s.must(err)
	_, standing, _ := datapoint.SendOf(last.Event)
	e := memory.Derived{
		ProjectID: s.call.Principal.Project.ID, IngestionID: s.send, Ordinal: ordinal, Revision: standing.Head().Revision,
		Extractor: "builtin/1", DerivedAt: at,
		OccurredAt: at,
	}
	for n := range 2 {
		e.Memories = append(e.Memories, memory.Memory{
			ID: memory.ID(point, e.Revision, n), Kind: memory.Claim, Content: fmt.Sprintf("memory %d of %s", n, id),
			Excerpt: "text", Subject: id,
			Attribute: "text", Inputs: []uuid.UUID{datapoint.NodeID(point, e.Revision)},
		})
	}
	if inBlob {
		data, err := memory.Encode(e.Memories)
		s.must(err)
		ref, err := s.log.WriteBlob(s.t.Context(), point, meta.CommandID, e.ProjectID, at.Add(blob.Keep), meta, data)
		s.must(err)
		e.Memories, e.Blob = nil, &ref
	}
	_, err = s.log.Append(s.t.Context(), stream.Name(stream.Memory, point), eventstore.NoStream, meta, e)
	s.must(err)
}

func operations() []operation {
	batch := []ingest.DataPoint{item("new", "one"), item("same", "two"), item("changed", "four"), item("large", big)}
	known := func(s *scene) {
		s.ingestBatch(item("same", "two"), item("changed", "three"))
		s.remember("same", 0, false)
		s.remember("changed", 1, true)
	}
	all := func(s *scene) {
		s.ingestBatch(batch...)
		for ordinal, in := range batch {
			s.remember(*in.ID, ordinal, *in.ID == "large")
		}
	}
	single := func(in ingest.DataPoint, key string) func(*scene, *commands.Service, *Finisher) error {
		return func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.Ingest(s.t.Context(), s.call, in, key)
			return err
		}
	}
	deletion := func(ids ...string) func(*scene, *commands.Service, *Finisher) error {
		return func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.DeleteDataPoints(s.t.Context(), s.call, ids)
			return err
		}
	}
	finish := func(s *scene, _ *commands.Service, f *Finisher) error {
		_, err := f.EraseNow(s.t.Context())
		return err
	}
	author := "ana"
	signed := item("new", "one")
	signed.Identity = &author
	return append(identityOperations(), []operation{
		{name: "single send", method: "Ingest", act: single(signed, "")},
		{name: "event of a webhook", method: "ReceiveEvent", prepare: known, act: func(
			s *scene, c *commands.Service, _ *Finisher,
		) error {
			call := s.call
			call.Principal.Webhook = &auth.Webhook{
				ID: "whk_1", Settings: webhook.Settings{Name: "Tickets", ContentPath: "$.text", IDPath: "$.id"},
			}
			_, err := c.ReceiveEvent(s.t.Context(), call, "evt_1", []byte(`{"id":"changed","text":"four"}`))
			return err
		}},
		{name: "single send with key", method: "Ingest", prepare: known, act: single(item("changed", "four"), "key")},
		{name: "correction", method: "Correct", prepare: known, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.Correct(s.t.Context(), s.call, ingest.Correction{
				SourceID: "changed", Revision: 1,
				Content: new("corrected"),
			})
			return err
		}},
		{name: "single send with key and blob", method: "Ingest", act: single(item("large", big), "key")},
		{name: "batch", method: "IngestBatch", prepare: known, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.IngestBatch(s.t.Context(), s.call, batch, "key")
			return err
		}},
		{name: "deletion of one id", method: "DeleteDataPoints", prepare: known, act: deletion("same")},
		{name: "bulk deletion", method: "DeleteDataPoints", prepare: all, act: deletion("new", "large", "same")},
		{name: "deletion of a send", method: "DeleteSend", prepare: func(s *scene) {
			all(s)
			send := s.send
			s.ingestBatch(item("changed", "five")) // stays: a later send revised it
			s.send = send
		}, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.DeleteSend(s.t.Context(), s.call, s.send)
		}},
		{name: "deletion of a batch that is not fanned out", method: "DeleteSend", prepare: func(s *scene) {
			known(s)
			s.commitBatch("open", batch...)
		}, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.DeleteSend(s.t.Context(), s.call, s.sendID("open"))
		}},
		{name: "deletion of one id that is not fanned out", method: "DeleteDataPoints", prepare: func(s *scene) {
			known(s)
			s.commitBatch("open", batch...)
		}, act: deletion("new")},
		{name: "bulk deletion of ids that are not fanned out", method: "DeleteDataPoints", prepare: func(s *scene) {
			known(s)
			s.commitBatch("open", batch...)
		}, act: deletion("new", "changed", "large")},
		{name: "completing a batch and its deletion", prepare: func(s *scene) {
			known(s)
			s.commitBatch("open", batch...)
			s.dead(nil, s.stop(1).DeleteSend(s.t.Context(), s.call,
				s.sendID("open")))
			s.passHead()
		}, act: finish},
		{name: "retry", method: "Retry", prepare: func(s *scene) {
			known(s)
			_, err := s.log.Append(s.t.Context(), stream.Name(stream.Ingestion, s.send), 1, event.NewMeta("test", time.Now()),
				ingestion.Failed{ProjectID: s.call.Principal.Project.ID, Code: ingestion.ModelUnavailable, FailedAt: at})
			s.must(err)
		}, act: func(s *scene, c *commands.Service, _ *Finisher) error { return c.Retry(s.t.Context(), s.call, s.send) }},
		{name: "cleaning", prepare: func(s *scene) {
			all(s)
			s.remove("new", "large")
			s.remove("same")
		}, act: finish},
		{name: "completing and giving up", prepare: func(s *scene) {
			s.dead(s.stop(3).IngestBatch(s.t.Context(), s.call, batch, "whole"))
			s.dead(s.stop(2).IngestBatch(s.t.Context(), s.call, []ingest.DataPoint{item("lost", "one")},
				"lost"))
			s.loseStage(s.sendID("lost"))
			s.passHead()
		}, act: finish},
		{name: "sweep", prepare: func(s *scene) {
			for range 3 {
				s.dead(s.stop(1).IngestBatch(s.t.Context(), s.call, batch, ""))
			}
			s.dead(s.stop(1).Ingest(s.t.Context(), s.call, item("large", big), ""))
			s.passHead()
		}, act: finish},
	}...)
}

// loseStage ends the stage of a committed batch, as a fault would.
func (w *harness) loseStage(send uuid.UUID) {
	w.t.Helper()
	facts, err := w.log.ReadFrom(w.t.Context(), stream.Name(stream.Ingestion, send), 0)
	runtest.Must(w.t, err)
	stage := facts[0].Event.(*ingestion.Accepted).Stage.Stream
	last, _, err := w.store.ReadLast(w.t.Context(), stage)
	if err == nil {
		_, err = w.store.Tombstone(w.t.Context(), stage, last.Revision)
	}
	runtest.Must(w.t, err)
}

// begin makes a project, and what an operation finds in it.
func (w *harness) begin(op operation) *scene {
	w.t.Helper()
	head, err := w.store.Head(w.t.Context())
	runtest.Must(w.t, err)
	s := &scene{harness: w, start: head}
	w.openProject()
	if op.prepare != nil {
		op.prepare(s)
	}
	w.passHead()
	return s
}

// services are the commands and the finisher over a store, with a clock on which every deadline of the test is over.
func (w *harness) services(store eventstore.Store) (*commands.Service, *Finisher) {
	log := engine.NewJournal(repeats{store, w}, w.log.Codec, w.log.Logger)
	log.Now, log.Namespaces = func() time.Time { return at }, w.log.Namespaces
	later := func() time.Time { return at.Add(blob.Keep + time.Minute) }
	return commands.New(commands.Config{
			Journal: log, Waiter: w.waiter, Sends: w.queries, Directory: w.directory,
			Records: w.directory, HashKey: make([]byte, 32), Pipeline: true,
		}),
		w.newFinisher(log, later)
}

// settle lets a new process complete what is open.
func (s *scene) settle() {
	s.t.Helper()
	s.passHead()
	_, finisher := s.services(s.store)
	runtest.Must(s.t, finisher.CatchUp(s.t.Context()))
	if done, err := finisher.EraseNow(s.t.Context()); err != nil ||
		done.Left.Deletions+done.Left.Blobs+done.Left.FanOuts > 0 {
		s.t.Fatalf("left %+v, %v", done.Left, err)
	}
	s.passHead()
}

// crashes returns at which writes a process dies: at every one, before it is stored and after, with ANNALS_CRASHES=all;
// otherwise at every third, before and after at different ones, and under the race detector at fewer.
func crashes() (every int, from func(stored bool) int) {
	none := func(bool) int { return 0 }
	switch {
	case os.Getenv("ANNALS_CRASHES") == "all":
		return 1, none
	case testing.Short():
		return 8, none
	}
	return 3, func(stored bool) int {
		if stored {
			return 1
		}
		return 0
	}
}

// Wherever a process dies in the middle of anything, the next one leaves what an uninterrupted
// run would have left, or what was there before; and what was answered is there. All of it is the
// finisher's: nothing is derived in this test.
func TestOperations_CrashAfterEachAppend(t *testing.T) {
	t.Parallel()
	w := newIdleHarness(t)
	every, from := crashes()
	covered, compared := slices.Concat(alone, elsewhere), ""
	for _, op := range operations() {
		covered = append(covered, op.method)
		t.Run(op.name, func(t *testing.T) {
			w.t = t
			untouched := w.begin(op)
			untouched.settle()
			before := untouched.outcome()

			whole := w.begin(op)
			service, finisher := w.services(w.store)
			runtest.Must(t, op.act(whole, service, finisher))
			whole.settle()
			after := whole.outcome()
			compared += strings.Join(slices.Concat(before, after), "\n") + "\n"

			steps := 0
			for _, stored := range []bool{false, true} {
				for n := from(stored); ; n += every {
					s := w.begin(op)
					v := &victim{left: n, stored: stored}
					service, finisher := w.services(v.over(w.store))
					err := op.act(s, service, finisher)
					s.settle()
					got := s.outcome()
					if err == nil && !slices.Equal(got, after) {
						t.Fatalf("answered, though killed at write %d (stored %t), and it is not there (-uninterrupted +killed):\n%s",
							n, stored, cmp.Diff(after, got))
					}
					if !slices.Equal(got, after) && !slices.Equal(got, before) {
						t.Fatalf("killed at write %d (stored %t) (-uninterrupted +killed):\n%s", n, stored, cmp.Diff(after, got))
					}
					if !v.died {
						break
					}
					steps++
				}
			}
			if steps == 0 {
				t.Error("it writes nothing")
			}
		})
	}
	if w.sent.again == 0 {
		t.Error("nothing was appended again under the id of an event")
	}
	for _, kind := range []string{
		"memories.memories {", "memories.edges {", "memories.captured {",
		"recallindex.data_points {", "source of same", "memory of same", "directory.identities {", "audiences ",
	} {
		if !strings.Contains(compared, kind) {
			t.Errorf("nothing of %q was compared", kind)
		}
	}
	service := reflect.TypeFor[*commands.Service]()
	for m := range service.Methods() {
		if !slices.Contains(covered, m.Name) {
			t.Errorf("command %s has no case", m.Name)
		}
	}
}

// people that the operations on identities are about.
var actors = []string{"ana", "bo", "cy"}

// wide is traits that do not fit into an event.
func wide(n int) map[string]string {
	traits := make(map[string]string, n)
	for i := range n {
		traits[fmt.Sprint("key", i)] = strings.Repeat("x", limit.TraitValue)
	}
	return traits
}

func identityOperations() []operation {
	known := func(s *scene) {
		for _, name := range []string{"ana", "bo"} {
			s.ok(s.write.PutIdentity(s.t.Context(), s.call, name, wide(130)))
		}
	}
	member := func(s *scene) {
		known(s)
		s.ok(s.write.PutAudience(s.t.Context(), s.call,
			identities.AudiencePut{Slug: "team", Kind: audience.KindFixed, Identities: []string{"ana"}}))
	}
	return []operation{
		{name: "put of an identity", method: "PutIdentity", act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PutIdentity(s.t.Context(), s.call, "ana", wide(130))
			return err
		}},
		{name: "sign-in of a person", method: "EnsureSignedIn", act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.EnsureSignedIn(s.t.Context(), s.call, "ana")
		}},
		{name: "patch of an identity", method: "PatchIdentity", prepare: known, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PatchIdentity(s.t.Context(), s.call, "ana", map[string]string{"key0": "other"}, []string{"key1"})
			return err
		}},
		{name: "removal of an identity", method: "DeleteIdentity", prepare: member, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			return c.DeleteIdentity(s.t.Context(), s.call, "ana")
		}},
		{name: "bulk write of identities", method: "BulkIdentities", prepare: member, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.BulkIdentities(s.t.Context(), s.call, []identity.Row{
				{Identity: "ana", Traits: map[string]string{"a": "1"}}, {Identity: "cy", Traits: wide(130)}, {Identity: "bo"}, {Identity: "ana", Traits: map[string]string{"a": "2"}},
			})
			return err
		}},
		{name: "put of an audience", method: "PutAudience", prepare: func(s *scene) {
			known(s)
			s.ok(s.write.PutIdentity(s.t.Context(), s.call, "cy", nil))
		}, act: func(s *scene, c *commands.Service, _ *Finisher) error {
			_, err := c.PutAudience(s.t.Context(), s.call,
				identities.AudiencePut{Slug: "team", Kind: audience.KindFixed, Identities: actors})
			return err
		}},
		{name: "finishing bulk writes and removals", prepare: func(s *scene) {
			member(s)
			// A write more or less, and the process dies within the fan-out, or after the removal.
			s.dead(s.stop(3).BulkIdentities(s.t.Context(), s.call,
				[]identity.Row{{Identity: "bo"}, {Identity: "cy", Traits: map[string]string{"c": "3"}}}))
			s.must(s.stop(1).DeleteIdentity(s.t.Context(), s.call, "ana"))
			s.passHead()
		}, act: func(s *scene, _ *commands.Service, f *Finisher) error {
			_, err := f.EraseNow(s.t.Context())
			return err
		}},
	}
}

// directory is what stands of the identities and audiences, without ids, positions and times.
func (s *scene) people() []string {
	s.t.Helper()
	project := s.call.Principal.Project
	var all []string
	for _, name := range actors {
		facts, err := s.log.ReadFrom(s.t.Context(), stream.Name(stream.Identity,
			stream.IdentityID(project.Namespace, name)), 0)
		s.must(err)
		types := make([]string, len(facts))
		for i, f := range facts {
			types[i] = f.Type
		}
		// The author of a send appears before it, whether or not that comes to stand.
		if len(types) > 0 && !slices.Equal(types, []string{"identity.appeared.v1"}) {
			all = append(all, fmt.Sprint("record of ", name, ": ", strings.Join(types, " ")))
		}
	}
	for table, where := range map[string]string{
		"identities": "origin <> 'ingest'", "audiences": "true",
		"removals": "true", "bulks": "true", "bulk_rows": "true",
	} {
		rows, err := s.db.Query(s.t.Context(),
			fmt.Sprintf(`select (to_jsonb(r) - $2::text[])::text from directory.%s r where project_id = $1 and %s`, table,
				where),
			project.ID, []string{"id", "project_id", "position", "bulk_id", "identity_id", "marks", "private", "born"})
		s.must(err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		s.must(err)
		for _, row := range list {
			all = append(all, "directory."+table+" "+row)
		}
	}
	audiences, err := s.harness.directory.AudienceList(s.t.Context(), project)
	s.must(err)
	for _, a := range audiences {
		if a.Slug == audience.Default {
			continue // counts such an author
		}
		all = append(all, fmt.Sprintf("audiences %s: %d members, %v", a.Slug, a.MemberCount, a.Identities))
	}
	rows, err := s.db.Query(s.t.Context(), `select private from directory.identities where project_id = $1`, project.ID)
	s.must(err)
	private, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	s.must(err)
	for _, name := range actors {
		reached, err := s.harness.directory.Reach(s.t.Context(), project, name)
		s.must(err)
		// Without what is its own: an author has that before its send, whether or not that comes to stand.
		all = append(all, fmt.Sprintf("%s reaches %d", name, len(slices.DeleteFunc(reached.Audiences,
			func(id uuid.UUID) bool { return id == uuid.Nil || slices.Contains(private, id) }))))
	}
	return all
}

// outcome is what is left in the end, without ids, positions and times: the streams, the rows of
// the project, and the documents of its index. A claim alone is no send, and of a blob that is
// ended nothing is left.
func (s *scene) outcome() []string {
	s.t.Helper()
	labels, streams := map[uuid.UUID]string{}, map[string][]string{}
	for _, id := range []string{"new", "same", "changed", "large", "lost"} {
		point := s.pointID(id)
		labels[point] = id
		// What an ended stream held may be gone from the log already.
		streams[stream.Name(stream.DataPoint, point)] = nil
		streams[stream.Name(stream.Memory, point)] = nil
	}
	for _, r := range eventstoretest.All(s.t, s.store, s.start) {
		if !r.System() {
			streams[r.Stream] = append(streams[r.Stream], r.Type)
		}
	}
	var all []string
	for name, types := range streams {
		family := stream.Category(name)
		if _, _, err := s.store.ReadLast(s.t.Context(), name); errors.Is(err, eventstore.ErrDeleted) {
			types = []string{"ended"}
		} else {
			s.must(err)
		}
		if len(types) == 0 || family == stream.Blob && types[0] == "ended" || family == stream.Ingestion &&
			slices.Equal(types, []string{"ingestion.claimed.v1"}) || family == stream.Identity {
			continue
		}
		all = append(all, fmt.Sprint(family, " ", labels[stream.Owner(name)], ": ", strings.Join(types, " ")))
	}
	for _, table := range []string{
		"datapoints.data_points", "datapoints.revisions", "datapoints.sends", "datapoints.items", "datapoints.deletions", "datapoints.erasures",
		"datapoints.blobs", "datapoints.readiness", "datapoints.sends_without_items", "memories.memories", "memories.edges", "memories.captured", "memories.gone",
		"recallindex.data_points",
	} {
		rows, err := s.db.Query(s.t.Context(),
			fmt.Sprintf(`select (to_jsonb(r) - $2::text[])::text from %s r where project_id = $1`, table),
			s.call.Principal.Project.ID, []string{
				"id", "project_id", "ingestion_id", "data_point", "node_id", "request_id", "deletion_id", "owner", "stream", "send", "position", "content_blob",
				"metadata_blob", "blobs", "deadline", "accepted_at", "deleted_at", "settled_at", "verdict_at", "last_deleted_at", "occurred_at",
				"input_id", "derived_id", "derived_at", "memories", "author_key", "subject", "attribute",
			})
		s.must(err)
		list, err := pgx.CollectRows(rows, pgx.RowTo[string])
		s.must(err)
		for _, row := range list {
			all = append(all, table+" "+row)
		}
	}
	all = append(all, s.documents(labels)...)
	all = append(all, s.people()...)
	slices.Sort(all)
	return all
}

// documents are those of the index: how many, and what a search finds that asks for every text of the test.
func (s *scene) documents(labels map[uuid.UUID]string) []string {
	s.t.Helper()
	project := s.call.Principal.Project.ID
	n, err := s.index.Count(s.t.Context(), project)
	s.must(err)
	all := []string{fmt.Sprint("index: ", n, " documents")}
	found, err := s.index.Search(s.t.Context(), recallindex.Query{
		Analysis: indextest.Analysis, Project: project, Sources: 1000, Memories: 1000,
		Terms: recall.NewAnalyzer().Query("one two three four five text memory"), Audiences: []uuid.UUID{uuid.Nil},
	})
	s.must(err)
	for _, part := range []recallindex.Part{recallindex.Sources, recallindex.Memories} {
		for _, hit := range found.Of(part).Hits {
			all = append(all, fmt.Sprintf("%s of %s: revision %d, %d, length %d, %v", part, labels[hit.DataPoint],
				hit.Revision, hit.N, hit.Length, hit.Counts))
		}
	}
	return all
}
