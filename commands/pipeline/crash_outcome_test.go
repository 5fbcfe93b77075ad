package pipeline

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/annals-project/annals/domain/recall"
	"github.com/annals-project/annals/domain/stream"
	"github.com/annals-project/annals/eventstore"
	"github.com/annals-project/annals/eventstore/eventstoretest"
	"github.com/annals-project/annals/projections/recallindex"
	"github.com/annals-project/annals/projections/recallindex/indextest"
)

// outcome is what is left in the end, without ids, positions and times: the streams, the rows of
// the project, and the documents of its index. A claim alone is no send, and of a blob that is
// ended nothing is left.
func (s *scene) outcome() []string {
	s.t.Helper()
	labels, streams := map[uuid.UUID]string{}, map[string][]string{}
	for _, id := range []string{"new", "same", "changed", "large", "lost"} {
		point := stream.DataPointID(s.call.Principal.Project.Namespace, id)
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
