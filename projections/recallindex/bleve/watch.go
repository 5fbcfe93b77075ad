package bleve

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
)

// Bleve merges and writes files in background goroutines, and reports their failures to a callback
// that the configuration of an index names. watchName is the name of onBackgroundError.
const watchName = "annals"

// registerCallback must run before any index is opened: from then on Bleve only reads the names.
var registerCallback = sync.OnceFunc(func() { scorch.RegistryAsyncErrorCallbacks[watchName] = onBackgroundError })

// watches are those of open indexes, by the folder of their files.
var watches sync.Map

// watch holds the failures of the goroutines of an open index.
type watch struct {
	path string
	// failed is set by every failure, and cleared by takeFailed.
	failed atomic.Bool
	// stop is closed once a goroutine has ended: waiting for it would never return.
	stop chan struct{}
	once sync.Once
}

func newWatch(path string) *watch {
	w := &watch{path: filepath.Join(path, "store"), stop: make(chan struct{})}
	watches.Store(w.path, w)
	return w
}

// end ends a watch. w may be nil.
func (w *watch) end() {
	if w != nil {
		watches.CompareAndDelete(w.path, w)
	}
}

// onBackgroundError receives the failures of all indexes.
func onBackgroundError(err error, path string) {
	found, open := watches.Load(path)
	if w, ok := found.(*watch); open && ok {
		w.failed.Store(true)
		if errors.Is(err, scorch.ErrAsyncPanic) {
			w.once.Do(func() { close(w.stop) })
		}
	}
}

// stopped reports whether a goroutine has ended.
func (w *watch) stopped() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.stop:
		return true
	default:
		return false
	}
}

// takeFailed reports whether something failed since its last call.
func (w *watch) takeFailed() bool { return w != nil && w.failed.CompareAndSwap(true, false) }

// errStopped reports an index that writes nothing any more.
var errStopped = errors.New("a goroutine of the index ended")

// errBackground reports an index whose goroutines failed.
var errBackground = errors.New("files of the index could not be merged or written")

// batch writes a batch. It also returns if the goroutine that should write it ends.
func (h *handle) batch(b *bleve.Batch) error {
	done := make(chan error, 1)
	index := h.index
	b.SetInternal(stampKey, stamp())
	go func() {
		defer func() {
			if v := recover(); v != nil {
				done <- errStopped
			}
		}()
		done <- index.Batch(b)
	}()
	select {
	case err := <-done:
		return err
	case <-h.watch.stop:
		return errStopped
	}
}
