package deploytest

import (
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/prometheus/model/labels"
	"github.com/prometheus/prometheus/promql/promqltest"
	"github.com/prometheus/prometheus/rules"
)

// An alert fires after its time on the series of a fault, and not on those of a service that is well.
// A series is a value for each minute; "a+bxn" is a and n more values, each b above the one before.
func TestAlerts_FireOnFaultsOnly(t *testing.T) {
	const process = `instance="a",job="annals"`
	const recall = `annals_http_request_duration_seconds_bucket{` + process + `,route="/api/v1/recall",method="POST",le=`
	const ingest = `annals_http_request_duration_seconds_bucket{` + process + `,route="/api/v1/ingest",method="POST",le=`
	cases := map[string]struct{ fault, well string }{
		"AnnalsDown":     {`up{` + process + `} 0x30`, `up{` + process + `} 1x30`},
		"AnnalsAbsent":   {`up{instance="a",job="other"} 1x30`, `up{` + process + `} 1x30`},
		"AnnalsNotReady": {`annals_ready{` + process + `} 0x30`, `annals_ready{` + process + `} 0x2 1x27`},
		"AnnalsRestarts": {`process_start_time_seconds{` + process + `} 1x5 2x5 3x5 4x12`, `process_start_time_seconds{` + process + `} 1x20 2x10`},
		"AnnalsErrors": {
			`annals_http_requests_total{` + process + `,status="200"} 0+95x30` + "\n" + `annals_http_requests_total{` + process + `,status="500"} 0+5x30`,
			`annals_http_requests_total{` + process + `,status="200"} 0+99x30` + "\n" + `annals_http_requests_total{` + process + `,status="500"} 0+1x30`,
		},
		"AnnalsRecallSlow": {
			recall + `"1"} 0+90x30` + "\n" + recall + `"2.5"} 0+100x30` + "\n" + recall + `"+Inf"} 0+100x30`,
			recall + `"1"} 0+100x30` + "\n" + recall + `"2.5"} 0+100x30` + "\n" + recall + `"+Inf"} 0+100x30`,
		},
		"AnnalsIngestSlow": {
			ingest + `"2.5"} 0+90x30` + "\n" + ingest + `"5"} 0+100x30` + "\n" + ingest + `"+Inf"} 0+100x30`,
			ingest + `"1"} 0+100x30` + "\n" + ingest + `"5"} 0+100x30` + "\n" + ingest + `"+Inf"} 0+100x30`,
		},
		"AnnalsWritesRefused": {`annals_writes_refused{` + process + `,why="disk"} 1x30`, `annals_writes_refused{` + process + `,why="disk"} 0x30`},
		"AnnalsDiskLow": {
			`annals_disk_free_bytes{` + process + `} 1900x30` + "\n" + `annals_disk_required_bytes{` + process + `} 1000x30`,
			`annals_disk_free_bytes{` + process + `} 2100x30` + "\n" + `annals_disk_required_bytes{` + process + `} 1000x30`,
		},
		"AnnalsBackupOld":   {`annals_backup_age_seconds{` + process + `} 172801+60x30`, `annals_backup_age_seconds{` + process + `} 80000+60x30`},
		"AnnalsOpenTooLong": {`annals_open_age_seconds{` + process + `,for="index"} 0+10x30`, `annals_open_age_seconds{` + process + `,for="index"} 20x30`},
		"AnnalsSendsFailed": {
			`annals_sends_failed_total{` + process + `,code="model-unavailable"} 0x10 0+1x19`,
			`annals_sends_failed_total{` + process + `,code="model-unavailable"} 7x30` + "\n" + `annals_sends_failed_total{` + process + `,code="content-rejected"} 0+1x30`,
		},
		"AnnalsServerDown": {
			`annals_server_up{` + process + `,server="model"} 0x30`, `annals_server_up{` + process + `,server="model"} 1x30`,
		},
		"AnnalsFanOutStuck": {`annals_fanouts_stuck{` + process + `} 1x30`, `annals_fanouts_stuck{` + process + `} 0x30`},
		"AnnalsErasureLate": {`annals_erasure_age_seconds{` + process + `} 90000+60x30`, `annals_erasure_age_seconds{` + process + `} 3600+60x30`},
		"AnnalsRequestLogLate": {
			`annals_request_log_flush_failures_total{` + process + `} 0+1x30`, `annals_request_log_flush_failures_total{` + process + `} 3x20 4x9`,
		},
		"AnnalsAuditTreesDiffer": {`annals_audit_trees_differ{` + process + `} 1x30`, `annals_audit_trees_differ{` + process + `} 0x30`},
		"AnnalsCheckpointLate": {
			`annals_audit_checkpoint_lag_seconds{` + process + `} 0+60x30`, `annals_audit_checkpoint_lag_seconds{` + process + `} 6x30`,
		},
		"AnnalsAnchorLate": {`annals_audit_anchor_lag_seconds{` + process + `} 0+60x30`, `annals_audit_anchor_lag_seconds{` + process + `} 60x30`},
		"AnnalsWitnessLate": {
			`annals_audit_witness_lag_seconds{` + process + `,witness="rome"} 0+60x30` + "\n" + `annals_audit_witness_lag_seconds{` + process + `,witness="oslo"} 0x30`,
			`annals_audit_witness_lag_seconds{` + process + `,witness="rome"} 60x30`,
		},
		"AnnalsErrorsLogged": {
			`annals_log_lines_total{` + process + `,level="error"} 0+1x30`,
			`annals_log_lines_total{` + process + `,level="error"} 5x30` + "\n" + `annals_log_lines_total{` + process + `,level="warn"} 0+1x30`,
		},
		"AnnalsDeletionStuck":     {`annals_deletions_stuck{` + process + `} 1x30`, `annals_deletions_stuck{` + process + `} 0x30`},
		"AnnalsProjectionStopped": {`annals_projection_stopped_total{` + process + `,projection="usage"} 0x20 1x9`, `annals_projection_stopped_total{` + process + `,projection="usage"} 1x30`},
		"AnnalsProjectionStalled": {
			`annals_projection_lag{` + process + `,projection="usage"} 500x30` + "\n" + `annals_projection_events_total{` + process + `,projection="usage"} 7x30`,
			`annals_projection_lag{` + process + `,projection="usage"} 500x30` + "\n" + `annals_projection_events_total{instance="b",job="annals",projection="usage"} 0+7x30`,
		},
		"AnnalsFeedStalls":     {`annals_feed_stalls_total{` + process + `} 0+1x30`, `annals_feed_stalls_total{` + process + `} 0x20 1x9`},
		"AnnalsEventsSetAside": {`annals_events_set_aside{` + process + `} 1x30`, `annals_events_set_aside{` + process + `} 0x30`},
		"AnnalsMeteringLate":   {`annals_metering_oldest_seconds{` + process + `} 0+120x30`, `annals_metering_oldest_seconds{` + process + `} 600x30`},
		"AnnalsPostgresConnections": {
			`annals_postgres_connections{` + process + `,pool="calls",state="in-use"} 32x30` + "\n" + `annals_postgres_connections_max{` + process + `,pool="calls"} 32x30`,
			`annals_postgres_connections{` + process + `,pool="calls",state="in-use"} 20x30` + "\n" + `annals_postgres_connections_max{` + process + `,pool="calls"} 32x30`,
		},
		"AnnalsPostgresReplicaAway": {
			`annals_postgres_replica_up{` + process + `} 0x30`, `annals_postgres_replica_up{` + process + `} 1x30`,
		},
		"AnnalsPostgresReplicaBehind": {
			`annals_postgres_replica_up{` + process + `} 1x30` + "\n" + `annals_postgres_replica_lag_seconds{` + process + `} 40x30`,
			`annals_postgres_replica_up{` + process + `} 1x30` + "\n" + `annals_postgres_replica_lag_seconds{` + process + `} 2x30`,
		},
		"AnnalsEmbeddingsDown": {`annals_embeddings_up{` + process + `} 0x30`, `annals_embeddings_up{` + process + `} 1x30`},
		"AnnalsRecallsByWordsAlone": {
			`annals_recalls_by_words_alone_total{` + process + `} 0+20x30` + "\n" + `annals_http_requests_total{` + process + `,route="/api/v1/recall"} 0+100x30`,
			`annals_recalls_by_words_alone_total{` + process + `} 0+5x30` + "\n" + `annals_http_requests_total{` + process + `,route="/api/v1/recall"} 0+100x30`,
		},
		"AnnalsFileDescriptors": {
			`process_open_fds{` + process + `} 900x30` + "\n" + `process_max_fds{` + process + `} 1024x30`,
			`process_open_fds{` + process + `} 100x30` + "\n" + `process_max_fds{` + process + `} 1024x30`,
		},
	}
	for _, rule := range alerts(t) {
		c, ok := cases[rule.Alert]
		if !ok {
			t.Errorf("%s has no case here", rule.Alert)
			continue
		}
		t.Run(rule.Alert, func(t *testing.T) {
			hold := time.Duration(rule.For)
			fired := firedAt(t, rule.Alert, rule.Expr, hold, c.fault)
			if len(fired) == 0 || fired[0] < hold {
				t.Errorf("fires after %v, want after %s", fired, hold)
			}
			if fired := firedAt(t, rule.Alert, rule.Expr, hold, c.well); len(fired) > 0 {
				t.Errorf("fires on a service that is well, after %v", fired)
			}
		})
	}
}

// firedAt evaluates an alert each minute for half an hour and returns the times at which it fires.
func firedAt(t *testing.T, name, text string, hold time.Duration, series string) (at []time.Duration) {
	t.Helper()
	storage := promqltest.LoadedStorage(t, "load 1m\n  "+strings.ReplaceAll(series, "\n", "\n  "))
	query := rules.EngineQueryFunc(promqltest.NewTestEngine(t, false, 5*time.Minute, 100_000), storage)
	expr, err := promQL.ParseExpr(text)
	if err != nil {
		t.Fatal(err)
	}
	rule := rules.NewAlertingRule(name, expr, hold, 0, labels.EmptyLabels(), labels.EmptyLabels(), labels.EmptyLabels(),
		"", true, slog.New(slog.DiscardHandler))
	for minute := range 30 {
		after := time.Duration(minute) * time.Minute
		if _, err := rule.Eval(t.Context(), 0, time.Unix(0, 0).Add(after), query, &url.URL{}, 0); err != nil {
			t.Fatal(err)
		}
		for _, alert := range rule.ActiveAlerts() {
			if alert.State == rules.StateFiring {
				at = append(at, after)
			}
		}
	}
	return at
}
