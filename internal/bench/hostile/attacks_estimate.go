package hostile

import (
	"context"
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/internal/hostiletest"
)

// estimateSeed makes the files of the attack the same in each run.
const estimateSeed = 20261125

// estimates are requests whose cost is out of proportion to their size: a file of every format and shape, a
// table of short rows below a long path, and very many files of one path. size is the most bytes of one file.
func estimates(size int) (requests [][]estimate.File) {
	for _, f := range hostiletest.Files(estimateSeed, size) {
		requests = append(requests, []estimate.File{f})
	}
	// Code points outside the BMP take the most bytes for their number, and the most escapes.
	path := strings.Repeat("\U0001f5c2", 970)
	rows := "id,a\n" + strings.Repeat("1,2\n", min(size, 256<<10)/4)
	equal := make([]estimate.File, 10_000)
	for n := range equal {
		equal[n] = estimate.File{Path: "equal.md", Content: fmt.Sprintf("# Note\n%d", n)}
	}
	return append(requests, []estimate.File{{Path: path + ".csv", Content: rows}}, equal)
}

// runEstimates asks for one after the other, eight at a time, with all data points and with none.
func runEstimates(ctx context.Context, a *Arena) error {
	size := int(min(16<<20, max(64<<10, a.Sizes.Hold.Seconds()/60*(16<<20))))
	requests := estimates(size)
	var made atomic.Int64
	return during(ctx, a.Sizes.Hold, 8, func(ctx context.Context, _ int) {
		n := int(made.Add(1) - 1)
		a.try(ctx, hostiletest.Estimate(requests[n/2%len(requests)], []string{"full", "none"}[n%2]))
	})
}
