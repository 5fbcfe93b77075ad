package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"slices"
	"strconv"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/panics"
)

// Files is one run over the batches of a spool, each with the idempotency key of its estimate: a batch that was sent
// before, by whichever run, changes nothing.
type Files struct {
	To    Sender
	Spool *Spool
	State *FilesState
	// Parallel is how many batches are in flight at once; 0 is 4.
	Parallel int
	// Moved is called after each acknowledged batch, from one goroutine. It may be nil.
	Moved func(FilesTotal)
}

// FilesTotal is what is acknowledged of an import, by this run and earlier ones.
type FilesTotal struct {
	Points, Unchanged, Batches int
	Bytes                      int64
	// Sent counts the data points of this run, SentUnchanged those of them that the server already had.
	Sent, SentUnchanged, SentBatches int
	ProjectID                        int64
	LastIngestion                    string
	// Left are the data points that the service refused for themselves: every run leaves them out.
	Left []LeftOut
}

// Total returns how much of a spool is acknowledged.
func (f Files) Total() FilesTotal {
	t := FilesTotal{ProjectID: f.State.ProjectID, LastIngestion: f.State.LastIngestion}
	for _, b := range f.Spool.batches {
		if done, sent := f.State.sent[b.key]; sent && !done.isOpen() {
			t.add(b, done)
		}
	}
	return t
}

// add counts an acknowledged batch.
func (t *FilesTotal) add(b planned, done sentBatch) {
	t.Points, t.Unchanged = t.Points+b.points-len(done.left), t.Unchanged+done.unchanged
	t.Batches, t.Bytes = t.Batches+1, t.Bytes+b.bytes
	t.Left = append(t.Left, done.left...)
}

// Bytes is the size of all contents of a spool.
func (s *Spool) Bytes() (n int64) {
	for _, b := range s.batches {
		n += b.bytes
	}
	return n
}

// flownBatch is a batch with its outcome.
type flownBatch struct {
	planned
	items []spooled
	sentItems
	err error
}

// Run sends what was not acknowledged yet, in the order of time. Batches that are in flight when one is refused are
// still awaited.
func (f Files) Run(ctx context.Context) (FilesTotal, error) {
	total, results, flying := f.Total(), make(chan *flownBatch), 0
	var failed error
	land := func() {
		b := <-results
		flying--
		if err := f.land(b, &total); err != nil && failed == nil {
			failed = err
		}
	}
	for _, b := range f.Spool.inOrder() {
		if done, sent := f.State.sent[b.key]; sent && !done.isOpen() {
			continue
		}
		for flying >= cmp.Or(f.Parallel, 4) {
			land()
		}
		if failed == nil {
			failed = ctx.Err()
		}
		if failed != nil {
			break
		}
		items, err := f.Spool.read(b)
		if err != nil {
			failed = err
			break
		}
		flying++
		go func() {
			sent := &flownBatch{planned: b, items: items}
			raw := make([]json.RawMessage, len(items))
			for i, item := range items {
				raw[i] = item.Item
			}
			sent.err = panics.Call(ctx, slog.Default(), "sending a batch panicked", func() (err error) {
				sent.sentItems, err = sendItems(ctx, f.To, raw, b.key)
				return err
			})
			results <- sent
		}()
	}
	for flying > 0 {
		land()
	}
	return total, failed
}

// land records the outcome of a batch.
func (f Files) land(b *flownBatch, total *FilesTotal) error {
	if b.err != nil {
		return b.explain()
	}
	done := sentBatch{unchanged: b.unchanged(), left: b.left}
	for i := range done.left {
		done.left[i].Path = b.items[done.left[i].Item].Path
	}
	if err := f.State.add(b.key, done, b.receipt); err != nil {
		return err
	}
	total.add(b.planned, done)
	total.Sent, total.SentUnchanged = total.Sent+b.points-len(done.left), total.SentUnchanged+done.unchanged
	total.SentBatches++
	total.ProjectID, total.LastIngestion = f.State.ProjectID, f.State.LastIngestion
	if f.Moved != nil {
		f.Moved(*total)
	}
	return nil
}

// explain names the file that a refused item came from.
func (b *flownBatch) explain() error {
	refused, ok := errors.AsType[*client.APIError](b.err)
	if !ok {
		return b.err
	}
	if m := namedItem.FindStringSubmatch(refused.Message); m != nil {
		if i, err := strconv.Atoi(m[1]); err == nil && i < len(b.items) {
			return fmt.Errorf("a data point of %s was refused: %w", b.items[i].Path, b.err)
		}
	}
	return b.err
}

// FilesState is the progress of an import of files: the batches that were acknowledged. It is a file to which each of
// them adds a line. Losing it costs time only, since a batch that is sent again changes nothing.
type FilesState struct {
	Target
	// ProjectID is the number of the project in its store, 0 before the first batch.
	ProjectID     int64
	LastIngestion string
	// Notice is why the progress in the file is not used, "" if it is.
	Notice string
	// sent holds for each key what became of its batch.
	sent map[string]sentBatch
	file *os.File // nil keeps no progress
}

// sentBatch is a batch that was acknowledged: how many data points were unchanged, and those that were left out.
type sentBatch struct {
	unchanged int
	left      []LeftOut
}

// isOpen reports whether another run sends the batch again: an audience may exist by then. What was deleted stays out.
func (s sentBatch) isOpen() bool {
	return slices.ContainsFunc(s.left, func(l LeftOut) bool { return !l.Deleted })
}

// stateLine is a line of the file: the first one has the version, the server and the project.
type stateLine struct {
	Version   int    `json:"version,omitempty"`
	Server    string `json:"server,omitempty"`
	Project   string `json:"project,omitempty"`
	Sent      string `json:"sent,omitempty"`
	Unchanged int    `json:"unchanged,omitempty"`
	ProjectID int64  `json:"projectId,omitempty"`
	Ingestion string `json:"ingestion,omitempty"`
	// Left are the data points that were left out.
	Left []LeftOut `json:"left,omitempty"`
}

const filesVersion = 2

// OpenFilesState opens the progress of an import, or begins one. It begins again over the progress of another project.
// The caller must close it.
func OpenFilesState(path string, to Target) (*FilesState, error) {
	s := &FilesState{Target: to, sent: map[string]sentBatch{}}
	var err error
	if s.file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600); err != nil {
		return nil, fmt.Errorf("open progress file: %w (--state names another one)", err)
	}
	text, err := io.ReadAll(s.file)
	if err == nil {
		err = s.read(path, text)
	}
	if err != nil {
		return nil, errors.Join(err, s.file.Close())
	}
	return s, nil
}

// Close closes the file.
func (s *FilesState) Close() error {
	err := s.file.Close()
	if errors.Is(err, fs.ErrClosed) {
		return nil
	}
	return err
}

func (s *FilesState) read(path string, text []byte) error {
	// A crash may have cut the last line.
	whole := text[:bytes.LastIndexByte(text, '\n')+1]
	if len(whole) == 0 {
		return s.begin(path, text)
	}
	first := true
	for line := range bytes.Lines(whole) {
		var l stateLine
		if json.Unmarshal(line, &l) != nil || first != (l.Version == filesVersion) {
			return fmt.Errorf("%s is not a progress file of an import of files: name another one with --state", path)
		}
		if before := (Target{l.Server, l.Project}); first && !before.is(s.Target) {
			s.Notice = before.restart(path, s.Target)
			return s.begin(path, nil)
		}
		if !first {
			s.sent[l.Sent], s.ProjectID, s.LastIngestion = sentBatch{l.Unchanged, l.Left}, l.ProjectID, l.Ingestion
		}
		first = false
	}
	if err := s.file.Truncate(int64(len(whole))); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	_, err := s.file.Seek(int64(len(whole)), io.SeekStart)
	return err
}

// begin writes the first line, over a part of it that a crash left.
func (s *FilesState) begin(path string, text []byte) error {
	line := stateLine{Version: filesVersion, Server: s.Server, Project: s.Project}
	header, err := json.Marshal(line)
	if err != nil {
		return fmt.Errorf("encode progress: %w", err)
	}
	if !bytes.HasPrefix(header, text) {
		return fmt.Errorf("%s is not a progress file of an import of files: name another one with --state", path)
	}
	if err := s.file.Truncate(0); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	if _, err := s.file.Seek(0, io.SeekStart); err != nil {
		return fmt.Errorf("cut progress file: %w", err)
	}
	return s.write(line)
}

// add records an acknowledged batch. r is nil for one of which nothing was left.
func (s *FilesState) add(key string, done sentBatch, r *client.BatchReceipt) error {
	if r == nil {
		r = &client.BatchReceipt{ProjectID: s.ProjectID, IngestionID: s.LastIngestion}
	}
	if s.ProjectID != 0 && s.ProjectID != r.ProjectID {
		return errors.New("the key belongs to another project than the one of this import: name another progress file " +
			"with --state to send everything to the other project")
	}
	s.ProjectID, s.LastIngestion, s.sent[key] = r.ProjectID, r.IngestionID, done
	return s.write(stateLine{
		Sent: key, Unchanged: done.unchanged, ProjectID: r.ProjectID, Ingestion: r.IngestionID, Left: done.left,
	})
}

func (s *FilesState) write(l stateLine) error {
	text, err := json.Marshal(l)
	if err == nil {
		_, err = s.file.Write(append(text, '\n'))
	}
	if err == nil {
		err = s.file.Sync()
	}
	if err != nil {
		return fmt.Errorf("write progress file: %w", err)
	}
	return nil
}
