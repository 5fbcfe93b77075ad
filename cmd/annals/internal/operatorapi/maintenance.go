package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"time"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/internal/work"
)

// The operations on erasure and backup. They return when they are done. EraseNow erases what can be
// erased now; the rest is in Left.
var (
	PendingErasures = Operation[None, Pending]{http.MethodGet, "/operator/erase"}
	EraseNow        = Operation[None, Erased]{http.MethodPost, "/operator/erase"}
	MakeBackup      = Operation[BackupRequest, Backup]{http.MethodPost, "/operator/backup"}
)

// Pending is what waits to be erased.
type Pending struct {
	// FanOuts counts committed batches, bulk writes and deletions that are not fanned out.
	FanOuts int `json:"fanOuts"`
	// Deletions counts deletions that are not cleaned, DataPoints the data points in them.
	Deletions  int `json:"deletions"`
	DataPoints int `json:"dataPoints"`
	// Identities counts removed identities that are not cleaned.
	Identities int `json:"identities"`
	// Blobs counts unreferenced blobs. The last of them may be swept at Until.
	Blobs int        `json:"blobs"`
	Until *time.Time `json:"until,omitempty"`
}

// Erased is what EraseNow did.
type Erased struct {
	// Deletions and Identities count what was cleaned, Streams tombstones, and Blobs swept blobs.
	Deletions  int `json:"deletions"`
	Identities int `json:"identities"`
	Streams    int `json:"streams"`
	Blobs      int `json:"blobs"`
	// Tables were vacuumed and Indexes rewritten. Store is the result for the event store.
	Tables  int    `json:"tables"`
	Indexes int    `json:"indexes"`
	Store   string `json:"store"`
	// Left still waits.
	Left Pending `json:"left"`
}

// EraseRoutes returns the routes of erasure by a finisher.
func EraseRoutes(f *pipeline.Finisher) []Route {
	return []Route{
		PendingErasures.Serve(func(ctx context.Context, _ None) (Pending, error) {
			open, err := f.Pending(ctx)
			return pending(open), err
		}),
		EraseNow.Serve(func(ctx context.Context, _ None) (Erased, error) {
			done, err := f.EraseNow(ctx)
			return Erased{
				Deletions: done.Deletions, Identities: done.Identities, Streams: done.Streams, Blobs: done.Blobs,
				Tables: done.Tables, Indexes: done.Indexes, Store: done.Store, Left: pending(done.Left),
			}, err
		}),
	}
}

func pending(open work.Open) Pending {
	return Pending{
		FanOuts: open.FanOuts, Deletions: open.Deletions, DataPoints: open.Erasures, Identities: open.Identities,
		Blobs: open.Blobs, Until: open.Until,
	}
}

// BackupRequest names the folder of a backup: an absolute path of a folder that is empty or missing,
// and that the server may write.
type BackupRequest struct {
	Dir string `json:"dir"`
}

// Backup is a completed backup.
type Backup struct {
	Dir string `json:"dir"`
	// Position is the position of its newest event.
	Position uint64 `json:"position"`
}

// BackupRoute returns the route of backups of a data folder.
func BackupRoute(from datafolder.Backup) Route {
	return MakeBackup.Serve(func(ctx context.Context, in BackupRequest) (Backup, error) {
		if !filepath.IsAbs(in.Dir) {
			return Backup{}, &refusedError{errInvalid, "dir is not an absolute path"}
		}
		position, err := from.Make(ctx, in.Dir)
		if refused, is := errors.AsType[*datafolder.RefusedError](err); is {
			err = Refuse("%s", refused.Error())
		}
		return Backup{in.Dir, position}, err
	})
}
