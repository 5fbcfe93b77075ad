package webhookview

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/annals-project/annals/internal/tenants"
)

// A tried event is printed with credits only where they are metered.
func TestPrintTried(t *testing.T) {
	for want, tried := range map[string]tenants.TriedEvent{
		"audience     the whole project\n\nTea.\n":                        {Content: "Tea."},
		"audience     the whole project\n  credits      1.1\n\nTea.\n":    {Content: "Tea.", Credits: new(json.Number("1.1"))},
		"dropped by: $.text exists\n":                                     {DroppedBy: new("$.text exists")},
		"dropped by: $.text exists\ncredits: 0.1\n":                       {DroppedBy: new("$.text exists"), Credits: new(json.Number("0.1"))},
		"it would be refused: no\ningested\n  occurred at  time of recei": {Refused: "no"},
	} {
		var printed strings.Builder
		if err := PrintTried(&printed, tried); err != nil || !strings.Contains(printed.String(), want) {
			t.Errorf("printed\n%s, %v, want\n%s", printed.String(), err, want)
		}
	}
}

func TestPrint_State(t *testing.T) {
	for state, w := range map[string]tenants.Webhook{
		"active": {}, "paused": {Paused: true}, "deleted": {Deleted: true, Paused: true},
	} {
		var printed strings.Builder
		if err := Print(&printed, w); err != nil || !strings.Contains(printed.String(), "state        "+state+"\n") {
			t.Errorf("a webhook that is %s is printed as\n%s, %v", state, printed.String(), err)
		}
	}
}
