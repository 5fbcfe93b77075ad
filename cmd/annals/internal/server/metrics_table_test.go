package server

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// metricRow is what docs/metrics.md states about a metric.
type metricRow struct {
	kind   string
	labels []string
}

// What /metrics exposes has the types and the labels that docs/metrics.md states. They show what is stored, and /readyz a start.
func TestMetrics_AsDocumented(t *testing.T) {
	unraced(t)
	t.Parallel()
	rows := metricRows(t)
	h := newHarness(t)
	h.set = func(cfg *Config) { cfg.MinFreeDisk = 1 << 20 }
	h.start()
	h.sendTeaAndRecall()
	exposed := 0
	for line := range strings.Lines(h.metrics()) {
		line = strings.TrimSpace(line)
		if kind, ok := strings.CutPrefix(line, "# TYPE annals_"); ok {
			name, kind, _ := strings.Cut(kind, " ")
			if exposed++; rows["annals_"+name].kind != kind {
				t.Errorf("annals_%s is a %s, docs/metrics.md states %q", name, kind, rows["annals_"+name].kind)
			}
		}
		if !strings.HasPrefix(line, "annals_") {
			continue
		}
		name, labels := sample(line)
		row, ok := rows[name]
		if !ok {
			name = strings.TrimSuffix(strings.TrimSuffix(strings.TrimSuffix(name, "_bucket"), "_sum"), "_count")
			row = rows[name]
			labels = slices.DeleteFunc(labels, func(label string) bool { return label == "le" })
		}
		slices.Sort(row.labels)
		slices.Sort(labels)
		if !slices.Equal(row.labels, labels) {
			t.Errorf("%s has the labels %v, docs/metrics.md states %v", name, labels, row.labels)
		}
	}
	if exposed < 15 {
		t.Errorf("only %d metrics are exposed", exposed)
	}
	text := h.metrics()
	for _, line := range []string{
		"annals_ready 1", `annals_console_places{class="known-browsers"} 0`, `annals_console_bytes{class="forms"} 0`,
		`annals_console_waiting{class="unread"} 0`, `annals_console_refused_total{class="exports"} 0`,
	} {
		if !strings.Contains(text, line+"\n") {
			t.Errorf("a ready service without load does not expose %s", line)
		}
	}
	h.metersWhatIsStored()
	h.showsTheStart()
}

// sample returns the name and the labels of a line such as `name{a="x",b="y"} 1`.
func sample(line string) (name string, labels []string) {
	series, _, _ := strings.Cut(line, " ")
	name, rest, ok := strings.Cut(series, "{")
	for ok {
		var label string
		if label, rest, ok = strings.Cut(rest, `="`); ok {
			labels = append(labels, strings.TrimPrefix(label, ","))
			_, rest, _ = strings.Cut(rest, `"`)
		}
	}
	return name, labels
}

func metricRows(t *testing.T) map[string]metricRow {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("..", "..", "..", "..", "docs", "metrics.md"))
	if err != nil {
		t.Fatal(err)
	}
	rows := map[string]metricRow{}
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 6 || !strings.Contains(cells[1], "`annals_") {
			continue
		}
		row := metricRow{kind: strings.TrimSpace(cells[2])}
		for _, label := range strings.Split(cells[3], ",") {
			if label = strings.Trim(label, " `"); label != "" {
				row.labels = append(row.labels, label)
			}
		}
		rows[strings.Trim(cells[1], " `")] = row
	}
	return rows
}
