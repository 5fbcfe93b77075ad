package estimate

import (
	"container/heap"
	"slices"
)

// rows keeps the first data points of a plan: all of them, or a number.
type rows struct {
	most int // negative for no bound
	// list is a heap with the last row first if there is a bound.
	list []placed
}

type placed struct {
	order order
	row   Row
}

func newRows(most int) *rows { return &rows{most: most} }

func (r *rows) add(at order, row Row) {
	switch {
	case r.most < 0:
		r.list = append(r.list, placed{at, row})
	case len(r.list) < r.most:
		heap.Push(r, placed{at, row})
	case r.most > 0 && compareOrder(at, r.list[0].order) < 0:
		r.list[0] = placed{at, row}
		heap.Fix(r, 0)
	}
}

func (r *rows) each(yield func(order, Row)) {
	for _, p := range r.list {
		yield(p.order, p.row)
	}
}

// inOrder returns the rows in the order of the plan.
func (r *rows) inOrder() []Row {
	slices.SortFunc(r.list, func(a, b placed) int { return compareOrder(a.order, b.order) })
	list := make([]Row, len(r.list))
	for i, p := range r.list {
		list[i] = p.row
	}
	return list
}

// Len, Less, Swap, Push and Pop implement heap.Interface.
func (r *rows) Len() int           { return len(r.list) }
func (r *rows) Less(i, j int) bool { return compareOrder(r.list[i].order, r.list[j].order) > 0 }
func (r *rows) Swap(i, j int)      { r.list[i], r.list[j] = r.list[j], r.list[i] }

// Push implements heap.Interface.
func (r *rows) Push(x any) {
	if p, ok := x.(placed); ok {
		r.list = append(r.list, p)
	}
}

// Pop implements heap.Interface.
func (r *rows) Pop() any {
	last := r.list[len(r.list)-1]
	r.list = r.list[:len(r.list)-1]
	return last
}
