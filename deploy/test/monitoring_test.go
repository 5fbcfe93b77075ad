package deploytest

import (
	"encoding/json"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/common/model"
	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/model/rulefmt"
	"github.com/prometheus/prometheus/promql/parser"
)

// promQL reads the expressions of alerts and dashboards.
var promQL = parser.NewParser(parser.Options{})

// scraped are the labels that Prometheus adds to what it scrapes, and that of buckets.
var scraped = []string{"instance", "job", "le"}

// dashboard is the part of a Grafana dashboard that is checked.
type dashboard struct {
	UID, Title string
	Panels     []struct {
		ID                       int
		Type, Title, Description string
		GridPos                  struct{ X, Y, W, H int }
		Datasource               struct{ Type, UID string }
		Targets                  []struct{ Expr, RefID string }
	}
	Templating struct {
		List []struct{ Name, Type, Query string }
	}
}

// Every expression of an alert or a dashboard is PromQL, about metrics and labels that the service has.
func TestMonitoring_UsesExposedMetrics(t *testing.T) {
	exposed := exposedMetrics(t)
	for where, text := range expressions(t) {
		expr, err := promQL.ParseExpr(text)
		if err != nil {
			t.Errorf("%s: %v", where, err)
			continue
		}
		allowed := slices.Clone(scraped)
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			selector, ok := node.(*parser.VectorSelector)
			if !ok {
				return nil
			}
			has, ok := exposed[selector.Name]
			if !ok {
				t.Errorf("%s: the service does not expose %s", where, selector.Name)
			}
			allowed = append(allowed, has...)
			for _, m := range selector.LabelMatchers {
				if m.Name != labels.MetricName && !slices.Contains(has, m.Name) && !slices.Contains(scraped, m.Name) {
					t.Errorf("%s: %s has no label %s", where, selector.Name, m.Name)
				}
			}
			return nil
		})
		parser.Inspect(expr, func(node parser.Node, _ []parser.Node) error {
			var used []string
			switch node := node.(type) {
			case *parser.AggregateExpr:
				used = node.Grouping
			case *parser.BinaryExpr:
				if node.VectorMatching != nil {
					used = node.VectorMatching.MatchingLabels
				}
			}
			for _, label := range used {
				if !slices.Contains(allowed, label) {
					t.Errorf("%s: no metric of it has a label %s", where, label)
				}
			}
			return nil
		})
	}
}

// Each alert has a heading in the runbook, and each such heading an alert.
func TestAlerts_RunbookHeadings(t *testing.T) {
	runbook := read(t, "RUNBOOK.md")
	var headings, names []string
	for _, found := range regexp.MustCompile(`(?m)^### (Annals\w+)$`).FindAllStringSubmatch(runbook, -1) {
		headings = append(headings, found[1])
	}
	for _, rule := range alerts(t) {
		names = append(names, rule.Alert)
		if severity := rule.Labels["severity"]; !slices.Contains([]string{"critical", "warning", "info"}, severity) {
			t.Errorf("%s has the severity %q", rule.Alert, severity)
		}
		if rule.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", rule.Alert)
		}
		if url := rule.Annotations["runbook_url"]; !strings.HasSuffix(url, "/deploy/RUNBOOK.md#"+strings.ToLower(rule.Alert)) {
			t.Errorf("%s has the runbook_url %q", rule.Alert, url)
		}
	}
	if !slices.Equal(headings, names) {
		t.Errorf("headings of the runbook: %v\nalerts: %v", headings, names)
	}
}

// Grafana can import each dashboard: ids are unique, and panels are within the grid, without an overlap.
func TestDashboards_Layout(t *testing.T) {
	uids := map[string]string{}
	for file, d := range dashboards(t) {
		if d.Title == "" || d.UID == "" || uids[d.UID] != "" {
			t.Errorf("%s: title %q, uid %q, which %q has too", file, d.Title, d.UID, uids[d.UID])
		}
		uids[d.UID] = file
		taken, ids := map[[2]int]string{}, map[int]bool{}
		for _, p := range d.Panels {
			if p.Title == "" || p.Description == "" || ids[p.ID] || p.Datasource.UID != "${datasource}" || len(p.Targets) == 0 {
				t.Errorf("%s: panel %d %q lacks something, or its id is not its own", file, p.ID, p.Title)
			}
			ids[p.ID] = true
			for x := p.GridPos.X; x < p.GridPos.X+p.GridPos.W; x++ {
				for y := p.GridPos.Y; y < p.GridPos.Y+p.GridPos.H; y++ {
					if x >= 24 || taken[[2]int{x, y}] != "" {
						t.Fatalf("%s: panel %q is outside the grid or over %q", file, p.Title, taken[[2]int{x, y}])
					}
					taken[[2]int{x, y}] = p.Title
				}
			}
		}
	}
}

// expressions returns every expression of the alerts and the dashboards, by where it is.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	found := map[string]string{}
	for _, rule := range alerts(t) {
		found["alert "+rule.Alert] = rule.Expr
	}
	variables := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	values := regexp.MustCompile(`^label_values\((.+), \w+\)$`)
	for file, d := range dashboards(t) {
		for _, p := range d.Panels {
			for _, target := range p.Targets {
				found[file+", "+p.Title+", "+target.RefID] = variables.Replace(target.Expr)
			}
		}
		for _, v := range d.Templating.List {
			if of := values.FindStringSubmatch(v.Query); of != nil {
				found[file+", variable "+v.Name] = of[1]
			}
		}
	}
	return found
}

// alerts returns the rules, which Prometheus accepts, in their order.
func alerts(t *testing.T) []rulefmt.Rule {
	t.Helper()
	groups, errs := rulefmt.Parse([]byte(read(t, "prometheus/alerts.yaml")), false, model.UTF8Validation, promQL,
		slog.New(slog.DiscardHandler))
	if len(errs) > 0 {
		t.Fatal(errs)
	}
	var rules []rulefmt.Rule
	for _, group := range groups.Groups {
		rules = append(rules, group.Rules...)
	}
	if len(rules) == 0 {
		t.Fatal("no alert is read")
	}
	return rules
}

func dashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("../grafana/*.json")
	if err != nil || len(files) == 0 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	found := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal([]byte(read(t, "grafana/"+filepath.Base(file))), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		found[filepath.Base(file)] = d
	}
	return found
}

// exposedMetrics returns the metrics of the service with their labels: those of docs/metrics.md, which
// tests of the service compare with /metrics, and those of the libraries.
func exposedMetrics(t *testing.T) map[string][]string {
	t.Helper()
	found := map[string][]string{"up": nil}
	row := regexp.MustCompile("(?m)^\\| `(annals_\\w+)` \\| (\\w+) \\|([^|]*)\\|")
	for _, m := range row.FindAllStringSubmatch(read(t, "../docs/metrics.md"), -1) {
		var has []string
		for _, label := range regexp.MustCompile("`(\\w+)`").FindAllStringSubmatch(m[3], -1) {
			has = append(has, label[1])
		}
		names := []string{m[1]}
		if m[2] == "histogram" {
			names = []string{m[1] + "_bucket", m[1] + "_sum", m[1] + "_count"}
		}
		for _, name := range names {
			found[name] = has
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, family := range families {
		found[family.GetName()] = nil
	}
	if len(slices.Collect(maps.Keys(found))) < 40 {
		t.Fatalf("only %d metrics are known", len(found))
	}
	return found
}

// read reads a file of the deployment.
func read(t *testing.T, name string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", filepath.FromSlash(name)))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
