package operatorapi

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"

	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/commands/erasure"
	"github.com/annals-project/annals/commands/pipeline"
	"github.com/annals-project/annals/internal/work"
)

// The operations on erasure and backup. They return when they are done. EraseNow erases what can be
// erased now; the rest is in Left.
var (
	PendingErasures = Operation[None, work.Open]{http.MethodGet, "/operator/erase"}
	EraseNow        = Operation[None, erasure.Report]{http.MethodPost, "/operator/erase"}
	MakeBackup      = Operation[BackupRequest, Backup]{http.MethodPost, "/operator/backup"}
)

// EraseRoutes returns the routes of erasure by a finisher.
func EraseRoutes(f *pipeline.Finisher) []Route {
	return []Route{
		PendingErasures.Serve(func(ctx context.Context, _ None) (work.Open, error) { return f.Pending(ctx) }),
		EraseNow.Serve(func(ctx context.Context, _ None) (erasure.Report, error) {
			done, err := f.EraseNow(ctx)
			if denied := erasure.Denied(err); denied != nil {
				err = Refuse("%v; give the user of ANNALS_EVENTSTORE that right, then erase again (docs/stores.md)", denied)
			}
			return done, err
		}),
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
