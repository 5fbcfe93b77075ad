package estimate_test

import (
	"errors"
	"testing"
	"time"

	"github.com/annals-project/annals/domain/estimate"
)

// A file of an export is not cut into data points that others could read.
func TestRecords_Private(t *testing.T) {
	for content, skipped := range map[string]bool{
		`{"id":"a","identity":"ana","content":"x"}` + "\n" + `{"id":"b","identity":"ana","private":true,"content":"y"}`: true,
		`{"id":"a","identity":"ana","private":false,"content":"x"}` + "\n" + `{"id":"b","private":true,"content":"y"}`:  false,
		`{"name":"annals","private":true,"description":"a repository"}` + "\n" + `{"name":"b","private":true}`:          false,
	} {
		f, err := estimate.Decoded(t.Context(), "export.jsonl", "", []byte(content))
		if err != nil {
			t.Fatal(err)
		}
		_, err = estimate.Cut(t.Context(), f, time.UTC, func(estimate.Point) error { return nil })
		if _, is := errors.AsType[*estimate.Skip](err); is != skipped || err != nil && !is {
			t.Errorf("%s: %v, skipped %t", content, err, is)
		}
	}
}
