package metering_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/annals-project/annals/domain/metering"
	"github.com/annals-project/annals/internal/runtest"
)

func TestOverride_NamedFieldsOnly(t *testing.T) {
	got, err := metering.DefaultPlanTerms().
		Override(`{"flex":{"allowanceTenths":12345,"projects":0,"webhooks":false},"payg":{"recallTenths":0,"evidenceCeiling":1},
		"enterprise":{"retentionDays":365,"requestsPerMinute":1000000000},"self-hosted":{}}`)
	runtest.Must(t, err)
	want := metering.DefaultPlanTerms()
	flex, payg, enterprise := want[metering.Flex], want[metering.PayAsYouGo], want[metering.Enterprise]
	flex.AllowanceTenths, flex.Projects, flex.Webhooks = 12345, 0, false
	payg.RecallTenths, payg.EvidenceCeiling = 0, 1
	enterprise.RetentionDays, enterprise.RequestsPerMinute = 365, 1000000000
	want[metering.Flex], want[metering.PayAsYouGo], want[metering.Enterprise] = flex, payg, enterprise
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(metering.DefaultPlanTerms(), metering.DefaultPlanTerms()); diff != "" ||
		metering.DefaultPlanTerms()[metering.Flex].AllowanceTenths != 0 {
		t.Error("the default changed")
	}
}

func TestOverride_Invalid(t *testing.T) {
	for text, says := range map[string]string{
		``:                                    "no JSON object",
		`null`:                                "no JSON object",
		`[]`:                                  "no JSON object",
		`{"flex":7}`:                          "plan flex",
		`{"gold":{}}`:                         `"gold"`,
		`{"flex":{"price":1}}`:                "requestsPerMinute",
		`{"flex":{"projects":"many"}}`:        "plan flex",
		`{"flex":{"projects":1.5}}`:           "plan flex",
		`{"flex":{"projects":-1}}`:            "projects is -1",
		`{"flex":{"projects":1000000001}}`:    "projects is",
		`{"flex":{"requestsPerMinute":-1}}`:   "requestsPerMinute is -1",
		`{"flex":{"allowanceTenths":-1}}`:     "allowanceTenths is -1",
		`{"payg":{"recallTenths":-1}}`:        "recallTenths is -1",
		`{"payg":{"evidenceCeiling":0}}`:      "evidenceCeiling is 0",
		`{"payg":{"evidenceCeiling":32001}}`:  "evidenceCeiling is 32001",
		`{"payg":{"retentionDays":366}}`:      "retentionDays is 366",
		`{"flex":{"allowanceTenths":1e15}}`:   "plan flex",
		`{"flex":{"projects":7},"payg":null}`: "",
	} {
		_, err := metering.DefaultPlanTerms().Override(text)
		if says == "" {
			if err != nil {
				t.Errorf("%s: %v", text, err)
			}
			continue
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want a message with %q", text, err, says)
		}
	}
}
