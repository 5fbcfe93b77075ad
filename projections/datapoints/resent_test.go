package datapoints_test

import (
	"fmt"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/deletion"
	"github.com/annals-project/annals/domain/ingestion"
	"github.com/annals-project/annals/projections/datapoints"
)

// The deletion of a data point that was often sent unchanged changes only the items with a
// revision.
func TestDeleted_UnchangedSendsAreNotTouched(t *testing.T) {
	const resends = 500
	w := newFixture(t)
	w.revised("s", "a", alone)
	facts := []deletion.RetainedFact{
		{IngestionID: id("s"), RequestID: id("request of s"), AcceptedAt: at(0), Items: 1, Bytes: 7, CreditTenths: 10, Month: "2026-11", Outcome: ingestion.Created, Revision: 1},
	}
	for n := range resends {
		name := fmt.Sprint("again ", n)
		facts = append(facts, deletion.RetainedFact{
			IngestionID: id(name), RequestID: id("request of " + name), AcceptedAt: w.at(), Items: 1, Bytes: 7, CreditTenths: 10,
			Month: "2026-11", Outcome: ingestion.Unchanged, Revision: 1,
		})
		w.resent(name, "a", alone)
	}
	w.apply()
	read := func() string {
		var tables string
		if err := w.Queries.DB.QueryRow(t.Context(), `select string_agg(row, ' ' order by row) from (
				select 'item ' || ctid::text || xmin::text as row from datapoints.items where outcome = 'unchanged'
				union all select 'send ' || ctid::text || xmin::text from datapoints.sends
					where phase = 'nothing-changed') r`).Scan(&tables); err != nil {
			t.Fatal(err)
		}
		return tables
	}
	before := read()
	outcome := func() string {
		items := w.shown("again 7")
		if len(items) != 1 {
			t.Fatalf("items are %+v", items)
		}
		return items[0].Outcome
	}
	if got := outcome(); got != ingestion.Unchanged {
		t.Errorf("before its deletion it is %s", got)
	}
	w.deleted("d", "a", true)
	w.apply()
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Error("the deletion writes rows of unchanged sends")
	}
	if got := outcome(); got != ingestion.Deleted {
		t.Errorf("after its deletion it is %s", got)
	}
	// In parts, as the finisher retains them.
	w.kept("d", "a", facts[:300]...)
	w.kept("d", "a", append([]deletion.RetainedFact{facts[0]}, facts[300:]...)...)
	w.apply()
	if diff := cmp.Diff(before, read()); diff != "" {
		t.Error("retaining the facts writes rows of unchanged sends")
	}
	s, err := w.Queries.Status(t.Context(), project, id("again 7"))
	if err != nil || s.Status != datapoints.StatusCompleted {
		t.Errorf("an unchanged send is %+v, %v", s, err)
	}
}
