package admission_test

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/admission"
	"github.com/annals-project/annals/internal/auth"
)

// Each route of the contract has a row, no row is of another route, and what writes asks for room unless it deletes.
func TestRoutes_EachHasARow(t *testing.T) {
	for _, r := range auth.Routes() {
		row, ok := admission.RouteOf(r)
		if !ok {
			t.Errorf("%s %s has no row: say what its calls ask for", r.Method, r.Path)
			continue
		}
		if asks := row.Lane != admission.NoRoom; asks != (r.Writes() && !r.Deletes()) {
			t.Errorf("%s %s writes: %t, deletes: %t, lane %q", r.Method, r.Path, r.Writes(), r.Deletes(), row.Lane)
		}
	}
	if n := admission.Rows(); n != len(auth.Routes()) {
		t.Errorf("%d rows for %d routes", n, len(auth.Routes()))
	}
}

// The table is in limits.md, row by row.
func TestTable_Documented(t *testing.T) {
	text, err := os.ReadFile("../../docs/limits.md")
	if err != nil {
		t.Fatal(err)
	}
	room := admission.Resource{
		Name: "writes that wait for room", Total: admission.RoomWaiters, Organization: admission.RoomWaiters / 4,
		Project: admission.RoomWaiters / 4, Wait: admission.RoomWait, Waiters: admission.RoomWaiters,
	}
	for _, r := range append(admission.Resources(), room) {
		if row := rowOf(r); !strings.Contains(string(text), row) {
			t.Errorf("limits.md lacks the row\n%s", row)
		}
		if r.Project > r.Organization || r.Organization > r.Total || r.Project < 1 || (r.Wait > 0) != (r.Waiters > 0) {
			t.Errorf("the row %q does not fit together", r.Name)
		}
	}
}

func rowOf(r admission.Resource) string {
	amount := func(n int64) string {
		unit := ""
		if r.Bytes {
			n, unit = n>>20, " MiB"
		}
		text := strconv.FormatInt(n, 10)
		if len(text) > 3 {
			text = text[:len(text)-3] + "," + text[len(text)-3:]
		}
		return text + unit
	}
	wait, waiters := "–", "–"
	if r.Wait > 0 {
		wait, waiters = fmt.Sprintf("%d s", r.Wait/time.Second), strconv.Itoa(r.Waiters)
	}
	return fmt.Sprintf("| %s | %s | %s | %s | %s | %s |",
		r.Name, amount(r.Total), amount(r.Organization), amount(r.Project), wait, waiters)
}
