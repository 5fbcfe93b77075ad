package elastic

import "time"

// Small returns options with limits for a scripted server: bulk requests of two documents, three
// tries, and time-outs for what hangs.
func Small(o Options) Options {
	o.limits = defaultLimits
	o.limits.bulkOps, o.limits.bulkTries, o.limits.pause = 2, 3, time.Millisecond
	o.limits.connect, o.limits.body = 0, 1<<20
	return o
}

// WithScan makes searches for deletes and moves return few documents, so that they take rounds.
func WithScan(o Options, n int) Options {
	o.limits = defaultLimits
	o.limits.scan, o.limits.rewrite = n, n
	return o
}

// GCDeletes is how long a deleted document keeps its version, and
// WriteTime how long a request with documents may take.
const (
	GCDeletes = gcDeletes
	WriteTime = writeTime
)

// GCDeletesSetting is GCDeletes as a setting.
var GCDeletesSetting = gcDeletesSetting

// The bounds of the breaker.
const (
	BreakerLimit = breakerLimit
	BreakerPause = breakerPause
)
