package requestlog

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/uuid"
)

func TestLog_LastUses(t *testing.T) {
	h := newHarness(t)
	project, neighbour := uuid.New(), uuid.New()
	first, second := Key{Name: "first", Prefix: "svc_sk_ab12"}, Key{Name: "first", Prefix: "svc_sk_cd34"}
	call := func(project uuid.UUID, key Key, days int, change func(*Record)) Record {
		r := recordAt(project, noon.AddDate(0, 0, -days))
		r.Key = key
		if change != nil {
			change(&r)
		}
		return r
	}
	h.add(t,
		call(project, first, 12, nil), call(project, first, 3, func(r *Record) { r.Status, r.ErrorCode = 403, "refused" }),
		call(project, first, 7, func(r *Record) { r.Endpoint = "POST /api/v1/recall" }),
		call(project, second, 9, nil), call(neighbour, first, 0, nil),
		call(project, Key{Name: "console"}, 1, nil),
	)
	got, err := h.LastUses(t.Context(), project)
	want := map[Key]time.Time{first: noon.AddDate(0, 0, -3), second: noon.AddDate(0, 0, -9)}
	if diff := cmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if none, err := h.LastUses(t.Context(), uuid.New()); err != nil || len(none) > 0 {
		t.Errorf("an unused project: %v, %v", none, err)
	}
}
