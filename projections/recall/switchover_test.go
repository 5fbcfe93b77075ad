package recall_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/annals-project/annals/domain/blob"
	"github.com/annals-project/annals/projections/recall"
	"github.com/annals-project/annals/projections/recall/recalltest"
)

// interrupted is a reader of blobs that calls meanwhile before each read.
type interrupted struct {
	*recalltest.Harness
	meanwhile func()
}

func (i interrupted) ReadBlob(ctx context.Context, ref blob.Ref) ([]byte, error) {
	i.meanwhile()
	return i.Harness.ReadBlob(ctx, ref)
}

// replaceSchema makes a copy of a schema live, as the switch-over of a rebuild does.
func replaceSchema(t *testing.T, h *recalltest.Harness, name string, n int) {
	t.Helper()
	_, err := h.DB.Exec(t.Context(), fmt.Sprintf(`do $do$
		declare
			t record;
			live text := annals_schema_prefix() || '%[1]s';
		begin
			create schema %[1]s_next;
			for t in select tablename from pg_tables where schemaname = live loop
				execute format('create table %%I.%%I (like %%I.%%2$I including all excluding generated)', live || '_next', t.tablename, live);
				execute format('insert into %%I.%%I select * from %%I.%%2$I', live || '_next', t.tablename, live);
			end loop;
			alter schema %[1]s rename to %[1]s_old_%[2]d;
			alter schema %[1]s_next rename to %[1]s;
		end $do$`, name, n))
	if err != nil {
		t.Fatal(err)
	}
}

// An answer never mixes the tables of before and after the switch-over of a rebuild: the new ones lack
// rows in a snapshot from before.
func TestRecall_SwitchOverWithinTheSnapshot(t *testing.T) {
	h := recalltest.New(t, nil)
	if _, err := h.DB.Exec(t.Context(), `create table if not exists datapoints.checkpoint ()`); err != nil {
		t.Fatal(err)
	}
	h.Send(recalltest.DataPoint{ID: "in a blob", Content: "helix " + strings.Repeat("turns ", 500), OccurredAt: at(1), Big: true})
	h.Send(recalltest.DataPoint{ID: "in its row", Content: "helix " + strings.Repeat("bends ", 500), OccurredAt: at(2)})
	h.CatchUp()
	for _, switches := range []int{1, 3} {
		reads := 0
		config := h.Config()
		config.Blobs = interrupted{h, func() {
			if reads++; reads <= switches {
				replaceSchema(t, h, "datapoints", 10*switches+reads)
			}
		}}
		page, err := recall.New(config).Recall(t.Context(), h.Ask("helix"))
		switch {
		case switches == 1 && (err != nil || len(page.Results) != 2):
			t.Errorf("after a switch-over: %d results, want 2: %v", len(page.Results), err)
		case switches == 3 && err == nil:
			t.Errorf("with a switch-over in each try: %d results, want an error", len(page.Results))
		}
		if reads <= 1 {
			t.Errorf("the blob was read %d times", reads)
		}
	}
}
