package importer

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/annals-project/annals/domain/estimate"
	"github.com/annals-project/annals/domain/fault"
)

// line is a data point of a file as a batch takes it.
type line struct {
	ID        string          `json:"id"`
	Content   string          `json:"content"`
	Label     string          `json:"label,omitempty"`
	Timestamp *time.Time      `json:"timestamp,omitempty"`
	Metadata  json.RawMessage `json:"metadata,omitempty"`
	Audience  string          `json:"audience,omitempty"`
	Identity  string          `json:"identity,omitempty"`
}

// Bytes is a file as it is on a disk.
type Bytes struct {
	Path    string
	Content []byte
}

// Cut cuts some files into data points, as an estimate does, and returns them as the lines of an input. What a file
// names no audience for gets one, or none if it is "". The fault is content-too-large.
func Cut(
	ctx context.Context, zone *time.Location, audience string, files int, open func(i int) (Bytes, error),
) ([]byte, *estimate.Estimate, error) {
	plan := estimate.NewPlan(zone, -1)
	read := func(i int) (estimate.File, error) {
		file, err := open(i)
		if err != nil {
			return estimate.File{}, err
		}
		return estimate.Decoded(ctx, file.Path, "", file.Content)
	}
	for i := range files {
		file, err := read(i)
		if err == nil {
			err = plan.AddFile(ctx, file)
		}
		if errors.Is(err, estimate.ErrContents) || errors.Is(err, estimate.ErrKept) {
			err = fault.New(fault.TooLarge, fault.CodeContentTooLarge, "the files are too many data points: choose fewer")
		}
		if err != nil {
			return nil, nil, err
		}
	}
	made, err := plan.Estimate(ctx, estimate.Room{})
	if err != nil {
		return nil, nil, err
	}
	rows, err := made.Rows(ctx, estimate.Source{File: read}, func() {})
	if err != nil {
		return nil, nil, err
	}
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	for row, err := range rows {
		if err != nil {
			return nil, nil, err
		}
		l := line{row.ID, row.Content, row.Label, nil, row.Metadata, cmp.Or(row.Audience, audience), row.Identity}
		if !row.At.IsZero() {
			l.Timestamp = &row.At
		}
		if err := to.Encode(l); err != nil {
			return nil, nil, err
		}
	}
	return lines.Bytes(), made, nil
}
