package sources

import (
	"context"
	"encoding/json"
	"fmt"
	"iter"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/domain/limit"
)

// requestBytes is the size from which files go into the next request. A single file may exceed it.
const requestBytes = 64 << 20

// Request is the files of one call, and those that were left out.
type Request struct {
	Files   []client.EstimateFile
	Skipped []client.EstimatedFile
	// Remarks are what is not certain of the texts of Files, by their places.
	Remarks map[int]client.EstimateRemark
}

// Requests reads files and groups them in their order, so that each request is within the limits of the
// API. It holds the texts of one request in memory. The last request may have no files.
func Requests(ctx context.Context, files []File, kind string) iter.Seq2[Request, error] {
	return requests(ctx, files, kind, limit.EstimateFiles, requestBytes)
}

func requests(ctx context.Context, files []File, kind string, mostFiles, mostBytes int) iter.Seq2[Request, error] {
	return func(yield func(Request, error) bool) {
		var r Request
		size := 0
		for _, f := range files {
			text, skipped, remark, err := f.Read(ctx, kind)
			if err != nil {
				yield(Request{}, err)
				return
			}
			if skipped != "" {
				r.Skipped = append(r.Skipped, client.EstimatedFile{
					Path: f.Name, Skipped: &skipped, Remarks: []client.EstimateRemark{},
				})
				continue
			}
			encoded, err := json.Marshal(text)
			if err != nil {
				yield(Request{}, fmt.Errorf("encode %s: %w", f.Name, err))
				return
			}
			if len(r.Files) == mostFiles || len(r.Files) > 0 && size+len(encoded) > mostBytes {
				if !yield(r, nil) {
					return
				}
				r, size = Request{}, 0
			}
			if remark != nil {
				if r.Remarks == nil {
					r.Remarks = map[int]client.EstimateRemark{}
				}
				r.Remarks[len(r.Files)] = client.EstimateRemark{Code: string(remark.Code), Count: remark.Count, Text: remark.Text}
			}
			r.Files = append(r.Files, client.EstimateFile{Path: f.Name, Content: text, Kind: kind})
			size += len(encoded) + len(f.Name)
		}
		if len(r.Files)+len(r.Skipped) > 0 {
			yield(r, nil)
		}
	}
}
