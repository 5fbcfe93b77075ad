package bleve

import (
	"errors"
	"path/filepath"
	"sync"
	"sync/atomic"

	"github.com/blevesearch/bleve/v2"
	"github.com/blevesearch/bleve/v2/index/scorch"
)

// Bleve merges and writes files in goroutines of its own, and says what went wrong there to a function that is named in the
// configuration of an index. The name stands for watched.
const watchName = "annals"

// watchAll is called before any index is opened: from then on Bleve only reads the names.
var watchAll = sync.OnceFunc(func() { scorch.RegistryAsyncErrorCallbacks[watchName] = watched })

// watches are those of open indexes, by the folder of their files.
var watches sync.Map

// watch is what the goroutines of an open index ran into.
type watch struct {
	path string
	// trouble is set by every failure, and cleared by who looks.
	trouble atomic.Bool
	// over is closed once a goroutine ended: whoever waits for it would wait without end.
	over chan struct{}
	once sync.Once
}

func newWatch(path string) *watch {
	w := &watch{path: filepath.Join(path, "store"), over: make(chan struct{})}
	watches.Store(w.path, w)
	return w
}

// end ends a watch; nil has none.
func (w *watch) end() {
	if w != nil {
		watches.CompareAndDelete(w.path, w)
	}
}

// watched takes the failures of all indexes.
func watched(err error, path string) {
	found, open := watches.Load(path)
	if w, ok := found.(*watch); open && ok {
		w.trouble.Store(true)
		if errors.Is(err, scorch.ErrAsyncPanic) {
			w.once.Do(func() { close(w.over) })
		}
	}
}

// stopped reports whether a goroutine ended.
func (w *watch) stopped() bool {
	if w == nil {
		return false
	}
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// troubled reports whether something failed since it was asked last.
func (w *watch) troubled() bool { return w != nil && w.trouble.CompareAndSwap(true, false) }

// errStopped is an index that writes nothing any more.
var errStopped = errors.New("a goroutine of the index ended")

// errTrouble is an index whose goroutines could not do their work.
var errTrouble = errors.New("files of the index could not be merged or written")

// batch writes a batch; it returns also where the goroutine ends that should do it.
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
	case <-h.watch.over:
		return errStopped
	}
}
