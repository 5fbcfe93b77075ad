package main

import (
	"github.com/annals-project/annals/projections"
	"github.com/annals-project/annals/projections/datapoints"
	"github.com/annals-project/annals/projections/directory"
	"github.com/annals-project/annals/projections/usage"
)

// newDirectory makes the queries of the directory, one set of them for a process: they remember the rules of projects.
func newDirectory(st *storage, waiter *projections.Waiter, points datapoints.Queries) *directory.Queries {
	return directory.NewQueries(st.db, st.store, waiter, points, usage.Queries{DB: st.db})
}
