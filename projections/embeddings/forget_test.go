package embeddings

import (
	"slices"
	"testing"

	"github.com/google/uuid"

	"github.com/annals-project/annals/domain/memory"
)

// A column over its limit forgets what changed longest ago, and works like one that never had it.
func TestColumn_OverItsLimit(t *testing.T) {
	const many = 200
	col, whole := new(column), new(column)
	col.limit = 50 * (entryBytes + 2 + 4 + 8)
	var known []byte
	for n := range many {
		p := point{id: byte(n), degrees: float64(n % 90), minutes: n / 2, audience: byte(n % 3)}
		if n%7 == 6 {
			p.id = byte(n - 5) // a new revision of an earlier one
		}
		c := p.change(t, int64(n+1))
		col.apply([]change{c}, nil)
		col.forget()
		whole.apply([]change{c}, nil)
		if size := col.size.Load(); size > col.limit {
			t.Fatalf("%d bytes after change %d, want at most %d", size, n, col.limit)
		}
		known = append(slices.DeleteFunc(known, func(id byte) bool { return id == p.id }), p.id)
	}
	if len(col.places) < 20 || len(col.places) >= len(known) {
		t.Fatalf("%d of %d data points are left", len(col.places), len(known))
	}
	for i, id := range known {
		_, has := col.places[point{id: id}.key()]
		if want := i >= len(known)-len(col.places); has != want {
			t.Errorf("data point %d of %d, in order of change: known %t, want %t", i, len(known), has, want)
		}
	}
	// A deletion of what is forgotten changes nothing. What is left is found as in the whole column.
	newest := point{id: known[len(known)-1]}.key()
	for _, c := range []*column{col, whole} {
		c.apply(nil, []removal{{point{id: known[0]}.key(), many}, {newest, many}})
	}
	scale, code, _ := memory.Quantize(direction(30))
	q := Query{Audiences: []uuid.UUID{{}, {15: 1}}, Size: many}
	hits := func(c *column) map[uuid.UUID]float64 {
		found, err := newSearch(c, q, scale, code).run(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		cosines := map[uuid.UUID]float64{}
		for _, hit := range found {
			cosines[hit.DataPoint] = hit.Cosine
		}
		return cosines
	}
	left, all := hits(col), hits(whole)
	if len(left) == 0 || len(left) >= len(all) {
		t.Errorf("%d hits, and %d in the whole column", len(left), len(all))
	}
	for id, cosine := range left {
		if all[id] != cosine || id == newest {
			t.Errorf("%s has the cosine %f, want %f", id, cosine, all[id])
		}
	}
}

// The projects that were searched longest ago are evicted, and no project takes more than half.
func TestColumns_Evict(t *testing.T) {
	c := NewColumns(nil, "m")
	c.bytes = 100
	sized := func(id byte, size int64) *column {
		col := c.of(uuid.UUID{15: id})
		col.asked.Store(int64(len(c.projects)))
		col.size.Store(size)
		return col
	}
	sized(1, 40)
	sized(2, 40)
	c.evict(sized(3, 50))
	if len(c.projects) != 2 || c.projects[uuid.UUID{15: 1}] != nil {
		t.Errorf("left are %d projects, want all but the one that was searched longest ago", len(c.projects))
	}
	if limit := c.of(uuid.UUID{15: 3}).limit; limit != 50 {
		t.Errorf("one project may take %d of %d bytes, want half", limit, c.bytes)
	}
	if NewColumns(nil, "m").bytes != columnsBytes {
		t.Error("columns do not have their bound")
	}
}
