package audit_test

import (
	"strings"
	"testing"

	"github.com/annals-project/annals/console/pages/audit"
	"github.com/annals-project/annals/console/web"
)

// Who may open the pages are Admins and Owners, and auditors, who see no text on them.
func TestArea_WhoOpensThePages(t *testing.T) {
	area := audit.Area(audit.Deps{})
	if len(area.Routes) != 3 {
		t.Errorf("there are %d routes", len(area.Routes))
	}
	for _, route := range area.Routes {
		want := web.Admin
		if strings.Contains(route.Pattern, "{project}") {
			want = web.Manage
		}
		if route.Needs != want || route.Auditors != web.Audited {
			t.Errorf("%s needs %s, and %d of an auditor", route.Pattern, route.Needs, route.Auditors)
		}
	}
}
