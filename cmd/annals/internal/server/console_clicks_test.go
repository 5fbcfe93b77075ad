package server

import (
	"fmt"
	"net/http"
	"testing"
	"time"

	"github.com/annals-project/annals/internal/webtest"
)

// What an auditor asks is at most three clicks from the overview of a project: each line below is one. A word that is
// typed into the box on each page is one, too.
func TestConsole_ThreeClicks(t *testing.T) {
	unraced(t)
	t.Parallel()
	h := startConsole(t)
	key, _ := h.keys()
	rule := func(values ...string) point {
		return point{"kind": "rule", "rule": point{
			"match": "all", "conditions": []point{{"trait": "team", "operator": "is", "values": values}},
		}}
	}
	h.must(key, http.MethodPut, api+"/identities/ben", point{"traits": point{"team": "red"}}, nil)
	h.must(key, http.MethodPut, api+"/audiences/crew", rule("red"), nil)
	items := []point{{"id": "gone", "content": "Bo waters the plants."}, {"id": "plan", "content": "The plan.", "audience": "crew"}}
	for n := range 60 {
		items = append(items, point{"id": fmt.Sprint("note-", n), "content": fmt.Sprint("Note ", n)})
	}
	h.send(key, "/ingest/batch", "completed", point{"items": items})
	h.ahead.Add(int64(time.Hour))
	at := h.cfg.now().UTC().Format("2006-01-02T15:04:05Z")
	h.ahead.Add(int64(time.Hour))
	h.must(key, http.MethodPut, api+"/audiences/crew", rule("blue"), nil)
	h.submit("write", "/p/default/data/gone/delete").want(t, http.StatusSeeOther)
	h.submit("owner", "/p/default/reads/setting", "mode", "kept", "days", "365").want(t, http.StatusSeeOther)
	h.submit("read", "/p/default/recall", "query", "Who waters the plants?", "identity", "ana").
		want(t, http.StatusSeeOther)
	h.get("admin", "/p/default/data?format=csv").want(t, http.StatusOK, "note-59")

	reader := func() *webtest.Reader {
		r := h.as("auditor")
		r.Open("/p/default")
		return r
	}
	h.submit("owner", "/settings/organization/auditor-texts", "allowed", "yes").want(t, http.StatusSeeOther)

	who := reader() // deleted this text?
	who.Open("/p/default/search?q=gone")
	who.SeeLater(h.mail("write"))

	said := reader() // what did the rule say then?
	said.Follow("Audiences")
	said.Follow("crew")
	said.Submit("Show", map[string]string{"As of": at})
	said.See("It was a rule then")
	said.See("red")

	read := reader() // who read as ana?
	read.Follow("Reads")
	read.Submit("Filter", map[string]string{"As identity": "ana"})
	read.SeeLater(h.mail("read"))

	exported := reader()               // who exported, and what?
	exported.Open("/settings/history") // *History* of the organization
	exported.Submit("Show", map[string]string{"Kind": "visit.exported"})
	exported.SeeLater(h.mail("admin"))

	factor := reader() // has no second factor?
	factor.Follow("Members")
	factor.Submit("Show", map[string]string{"Show": "no-second-factor"})
	factor.See(h.mail("write"))

	could := reader() // Ben read it then?
	could.Follow("Who sees what")
	could.Submit("Explain", map[string]string{"Identity": "ben", "Id of the data point": "plan", "As of": at})
	could.See("could read plan")
}
