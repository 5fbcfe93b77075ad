package e2e

import (
	"net/url"
	"os/exec"
	"strings"
	"testing"

	client "github.com/annals-project/annals/client"
	"github.com/annals-project/annals/internal/runtest"
	"github.com/annals-project/annals/projections/recallindex/elastic"
	"github.com/annals-project/annals/projections/recallindex/elastic/elastictest"
)

// onEngines runs a test with the embedded index, and with a real Elasticsearch if there is one. The
// test gets the settings of the index.
func onEngines(t *testing.T, test func(t *testing.T, index []string)) {
	t.Run("embedded", func(t *testing.T) {
		t.Parallel()
		test(t, nil)
	})
	t.Run("elasticsearch", func(t *testing.T) {
		t.Parallel()
		test(t, elasticSettings(t, elastictest.Options(t)))
	})
}

// elasticSettings are the settings for an index of the test, with user and password apart from the
// address.
func elasticSettings(t *testing.T, o elastic.Options) []string {
	t.Helper()
	u, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	password, _ := u.User.Password()
	settings := []string{
		"ANNALS_INDEX_NAME=" + o.Name, "ANNALS_INDEX_USER=" + u.User.Username(), "ANNALS_INDEX_PASSWORD=" + password,
		"ANNALS_INDEX_CA=" + o.CA,
	}
	u.User = nil
	return append(settings, "ANNALS_INDEX="+u.String())
}

// TestElasticsearch_ErasedRebuiltAndLost deletes, erases and rebuilds with an Elasticsearch. An index
// that an operator removes there is built from the log again.
func TestElasticsearch_ErasedRebuiltAndLost(t *testing.T) {
	t.Parallel()
	options := elastictest.Options(t)
	s := newService(t, append(elasticSettings(t, options), sharedPostgres(t))...)
	s.start()
	c := s.client()
	gone, stays, deleted := runtest.Word(), runtest.Word(), false
	send := func(id, word string) {
		t.Helper()
		r, err := c.Ingest(t.Context(), client.DataPoint{ID: id, Content: "The password of " + id + " is " + word + "."})
		if err != nil {
			t.Fatal(err)
		}
		completed(t.Context(), t, c, r.IngestionID)
	}
	// recalls reports whether the first result is the data point.
	recalls := func(id, word string) bool {
		t.Helper()
		page, err := c.Recall(t.Context(), client.RecallRequest{Query: "What is the password " + word + "?", Identity: "x"})
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range page.Results {
			if deleted && strings.Contains(r.Content, gone) {
				t.Errorf("recall finds what was deleted: %+v", r)
			}
		}
		return len(page.Results) > 0 && page.Results[0].Sources[0].SourceID == id
	}
	send("gone", gone)
	send("stays", stays)
	if !recalls("gone", gone) || !recalls("stays", stays) {
		t.Fatal("what was sent is not recalled")
	}
	if _, err := c.DeleteDataPoints(t.Context(), []string{"gone"}); err != nil {
		t.Fatal(err)
	}
	deleted = true
	if recalls("gone", gone) {
		t.Fatal("what was deleted is recalled")
	}
	s.eraseNow()
	if out := s.waiting(); out != "nothing waits to be erased\n" {
		t.Errorf("annals erase: %s", out)
	}
	before := elastictest.Indexes(t, options)
	out, err := exec.CommandContext(t.Context(), binary, "rebuild", "recallindex", "--data-dir", s.dir).CombinedOutput()
	if err != nil {
		t.Fatalf("annals rebuild: %v\n%s", err, out)
	}
	after := elastictest.Indexes(t, options)
	if len(before) != 1 || len(after) != 1 || before[0] == after[0] {
		t.Errorf("a rebuild replaced %v by %v", before, after)
	}
	if !recalls("stays", stays) {
		t.Error("after a rebuild it is not recalled")
	}
	elastictest.Remove(t, options, after[0])
	runtest.Await(t, "the lost index is built again", func() bool { return recalls("stays", stays) })
	s.stop()
	s.start()
	send("later", runtest.Word())
	if !recalls("stays", stays) {
		t.Error("after a restart it is not recalled")
	}
}

// TestElasticsearch_WrongSettings starts with settings that cannot work. Each is one line without the
// password.
func TestElasticsearch_WrongSettings(t *testing.T) {
	t.Parallel()
	const password = "open-sesame"
	o := elastictest.Options(t)
	u, err := url.Parse(o.URL)
	if err != nil {
		t.Fatal(err)
	}
	settings := map[string]struct {
		set  []string
		want string
	}{
		"nobody there": {[]string{"ANNALS_INDEX=http://annals:" + password + "@127.0.0.1:1"}, "does not answer"},
	}
	if u.User != nil && u.Scheme == "https" {
		settings["another password"] = struct {
			set  []string
			want string
		}{[]string{"ANNALS_INDEX=https://annals:" + password + "@" + u.Host, "ANNALS_INDEX_CA=" + o.CA}, "refuses the credentials"}
		settings["no authority"] = struct {
			set  []string
			want string
		}{[]string{"ANNALS_INDEX=https://annals:" + password + "@" + u.Host}, "certificate"}
	}
	for name, test := range settings {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newService(t)
			cmd := exec.Command(binary, "serve", "--data-dir", s.dir, "--api-addr", runtest.FreeAddress(t), "--console-addr", "127.0.0.1:0")
			cmd.Env = append(append(cmd.Environ(), sharedPostgres(t), "ANNALS_LOG_LEVEL=error"), test.set...)
			out, err := cmd.CombinedOutput()
			text := strings.TrimSpace(string(out))
			if err == nil || !strings.Contains(text, test.want) || strings.Contains(text, "sesame") || strings.Contains(text, "\n") {
				t.Errorf("%v: %s; want one line with %q", err, text, test.want)
			}
		})
	}
}
