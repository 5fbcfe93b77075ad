package score

import (
	"errors"
	"fmt"
	"time"
)

// Bounds are flags: what a report must reach. A bound of 0 is none.
type Bounds struct {
	MinR10        float64       `name:"min-r10" help:"Fail if recall among 10 results, over all, is below this share."`
	MinR20        float64       `name:"min-r20" help:"Fail if recall among 20 results, over all, is below this share."`
	MinR100       float64       `name:"min-r100" help:"Fail if recall among 100 results, over all, is below this share."`
	MinWithin1000 float64       `name:"min-within-1000" help:"Fail if recall within 1,000 tokens, over all, is below this share."`
	MinWithin8000 float64       `name:"min-within-8000" help:"Fail if recall within 8,000 tokens, over all, is below this share."`
	MinGain       float64       `name:"min-gain" help:"Fail if recall within 8,000 tokens is less than this share above BM25's."`
	MaxSources    float64       `name:"max-sources" help:"Fail if a result cites more sources on the average."`
	MaxP50        time.Duration `name:"max-p50" help:"Fail if the median recall takes longer."`
}

// Check returns an error that names each bound that a report misses.
func (b Bounds) Check(r Report) error {
	var errs []error
	least := func(what string, got, want float64) {
		if got < want {
			errs = append(errs, fmt.Errorf("%s is %.3f, below %.3f", what, got, want))
		}
	}
	least("R@10", r.Overall.At[10], b.MinR10)
	least("R@20", r.Overall.At[20], b.MinR20)
	least("R@100", r.Overall.At[100], b.MinR100)
	least("recall within 1,000 tokens", r.Overall.Within[1000], b.MinWithin1000)
	least("recall within 8,000 tokens", r.Overall.Within[8000], b.MinWithin8000)
	if b.MinGain > 0 {
		gain := r.Overall.Within[8000] - r.Baseline.Within[8000]
		least("the gain over BM25 within 8,000 tokens", gain, b.MinGain)
	}
	if b.MaxSources > 0 && r.SourcesPerResult > b.MaxSources {
		errs = append(errs, fmt.Errorf("a result cites %.2f sources, more than %.2f", r.SourcesPerResult, b.MaxSources))
	}
	if got := time.Duration(r.P50 * float64(time.Millisecond)); b.MaxP50 > 0 && got > b.MaxP50 {
		errs = append(errs, fmt.Errorf("the median recall took %v, more than %v", got, b.MaxP50))
	}
	return errors.Join(errs...)
}
