package operator

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"path/filepath"
)

// BackedUp is a backup that was made.
type BackedUp struct {
	Dir string `json:"dir"`
	// Position is that of the newest event in it.
	Position uint64 `json:"position"`
}

// Backups makes backups of what the service keeps.
type Backups interface {
	// Backup fills a folder, which must be empty or not be there, while the service runs. The path is absolute.
	Backup(ctx context.Context, dir string) (BackedUp, error)
}

// backupRequest is the body of POST /operator/backup.
type backupRequest struct {
	Dir string `json:"dir"`
}

// BackupRoutes serves POST /operator/backup, which answers when the backup is whole.
func BackupRoutes(backups Backups) Routes {
	return func(mux *http.ServeMux, out answers) {
		mux.HandleFunc("POST /operator/backup", func(w http.ResponseWriter, r *http.Request) {
			var in backupRequest
			if err := json.NewDecoder(io.LimitReader(r.Body, 64<<10)).Decode(&in); err != nil || !filepath.IsAbs(in.Dir) {
				out.write(w, r, http.StatusBadRequest, refusal{codeInvalid, "dir is not an absolute path"})
				return
			}
			done, err := backups.Backup(r.Context(), in.Dir)
			if err != nil {
				out.refuse(w, r, err)
				return
			}
			out.write(w, r, http.StatusOK, done)
		})
	}
}

// Backup lets the server back up into a folder, which it must be able to write; it takes as long as that takes.
func (c *Client) Backup(ctx context.Context, dir string) (BackedUp, error) {
	var done BackedUp
	body, err := json.Marshal(backupRequest{dir})
	if err != nil {
		return done, fmt.Errorf("make request: %w", err)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://annals/operator/backup", bytes.NewReader(body))
	if err != nil {
		return done, fmt.Errorf("make request: %w", err)
	}
	patient := &http.Client{Transport: c.http.Transport}
	res, err := patient.Do(req)
	if err != nil {
		return done, c.unreachable(err)
	}
	defer func() { _ = res.Body.Close() }()
	text, err := io.ReadAll(io.LimitReader(res.Body, 1<<20))
	if err != nil {
		return done, fmt.Errorf("read answer: %w", err)
	}
	if res.StatusCode != http.StatusOK {
		var r refusal
		if err := json.Unmarshal(text, &r); err != nil {
			return done, fmt.Errorf("the server answered %d", res.StatusCode)
		}
		return done, fmt.Errorf("the server could not make the backup: %s", r.Message)
	}
	if err := json.Unmarshal(text, &done); err != nil {
		return done, fmt.Errorf("answer of the server cannot be read: %w", err)
	}
	return done, nil
}

// Running reports whether a server answers on the data folder.
func (c *Client) Running(ctx context.Context) bool {
	conn, err := c.dial(ctx)
	if err != nil {
		return false
	}
	return conn.Close() == nil
}
