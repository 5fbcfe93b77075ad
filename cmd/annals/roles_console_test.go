package main

import (
	"net/http"
	"testing"
	"time"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/cmd/annals/internal/datafolder"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/internal/webtest"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// consoleAt gives a process a known address of its console.
func (s *served) consoleAt(roles string) (url string) {
	addr := runtest.FreeAddress(s.d.t)
	s.args = []string{"--roles=" + roles, "--console-addr=" + addr}
	return "http://" + addr
}

// wantConsole signs in at a console whose process does not write, makes a project and a key there, and sees there what
// is sent with the key to another process.
func (d *deployment) wantConsole(console, writer *served, url string) {
	d.t.Helper()
	credentials, err := datafolder.ReadCredentials(console.dir)
	runtest.Must(d.t, err)
	r := webtest.NewReader(d.t, url)
	r.Open("/")
	r.Submit("Sign in", map[string]string{
		"E-mail": credentials[datafolder.OwnerEmailName], "Password": credentials[datafolder.OwnerPasswordName],
	})
	r.Answered(http.StatusOK)
	r.Open("/")
	r.Submit("Create project", map[string]string{"Name": "Garden"})
	r.Follow("Create a key")
	r.Submit("Create key", map[string]string{"Name": "bot"})
	r.Answered(http.StatusOK)
	c, err := client.New("http://"+writer.addr, r.At.Secrets()[0])
	runtest.Must(d.t, err)
	_, err = c.Ingest(d.t.Context(), client.DataPoint{ID: "a", Content: "The code word of spring is marigold."})
	runtest.Must(d.t, err)
	r.Open("/p/garden")
	r.SeeLater("indexed")
	r.Open("/health")
	r.Answered(http.StatusOK)
}

// A process with the role console alone changes what its pages change.
func TestRoles_ConsoleApart(t *testing.T) {
	t.Parallel()
	index := elastictest.Options(t)
	d := newDeployment(t, time.Now(), 2)
	d.env = append(d.env, "ANNALS_INDEX="+index.URL, "ANNALS_INDEX_CA="+index.CA, "ANNALS_INDEX_NAME="+index.Name)
	console, rest := d.processes[0], d.processes[1]
	url := console.consoleAt("console")
	rest.args = []string{"--roles=write,read,projector,pipeline"}
	rest.start()
	console.start()
	d.wantConsole(console, rest, url)
}
