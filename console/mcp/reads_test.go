package mcp

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/datapoint"
	"github.com/annals-project/annals/domain/reads"
	"github.com/annals-project/annals/internal/readlog"
	"github.com/annals-project/annals/projections/recall"
)

// Of a recall those texts are recorded that are left in the answer, with the passages that take the place of a long
// one.
func TestLeftOf_WhatTheAnswerHas(t *testing.T) {
	source, memory, long, part, gone := uuid.New(), uuid.New(), uuid.New(), uuid.New(), uuid.New()
	u := &use{read: &readlog.Read{}}
	text := strings.Repeat("é", 10) + "the passage"
	u.noteParts(2, text, parts{characters: 21, at: []int{10}, texts: []string{"the passage"}})
	result := func(id uuid.UUID, kind string) any {
		return object{"id": id.String(), "artifact": object{"kind": kind}}
	}
	got := u.leftOf([]reads.Shown{
		{Node: source},
		{Node: gone},
		{Node: memory, Spans: []reads.Span{{1, 2}}},
		{Node: long},
		{Node: part, Spans: []reads.Span{{3, 4}}},
	}, []any{
		result(source, recall.KindSource), result(memory, "claim"), result(long, recall.KindSource),
		result(datapoint.PassageID(part, 7), "observation"),
	})
	want := []reads.Shown{
		{Node: source},
		{Node: memory, Spans: []reads.Span{{1, 2}}},
		{Node: long, Spans: []reads.Span{{20, 31}}},
		{Node: part, Spans: []reads.Span{{3, 4}}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("recorded (-want +got):\n%s", diff)
	}
}
