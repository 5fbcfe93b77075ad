package webhook_test

import (
	"embed"
	"encoding/json"
	"errors"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/annals-project/annals/domain/fault"
	"github.com/annals-project/annals/domain/limit"
	"github.com/annals-project/annals/domain/webhook"
	"github.com/annals-project/annals/internal/runtest"
	_ "github.com/annals-project/annals/internal/seedtest"
)

//go:embed testdata
var payloads embed.FS

func compile(t runtest.T, s webhook.Settings) *webhook.Mapping {
	t.Helper()
	if s.Name == "" {
		s.Name = "Tickets"
	}
	if s.ContentPath == "" {
		s.ContentPath = "$"
	}
	m, err := s.Compile()
	runtest.Must(t, err)
	return m
}

func instantOf(t testing.TB, text string) time.Time {
	t.Helper()
	at, err := time.Parse(time.RFC3339Nano, text)
	runtest.Must(t, err)
	return at
}

func filter(t testing.TB, expression string) webhook.Filter {
	t.Helper()
	f, err := webhook.ParseFilter(expression)
	if err != nil {
		t.Fatalf("%s: %v", expression, err)
	}
	return f
}

// Bodies as other systems send them.
func TestMap_Systems(t *testing.T) {
	for name, c := range map[string]struct {
		file     string
		settings webhook.Settings
		want     webhook.Event
	}{
		"GitHub, a comment on an issue": {"github.json", webhook.Settings{
			ContentPath: "$.comment.body", OccurredAtPath: "$.comment.created_at", IDPath: "$.comment.node_id", Audience: "team",
			Filters: []webhook.Filter{filter(t, "$.action is created"), filter(t, "$.issue.labels[0].name contains bug")},
		}, webhook.Event{
			Content:    "The export fails with \"disk full\" — see the log.\n\n> 2 GB free",
			OccurredAt: instantOf(t, "2026-05-04T09:12:33Z"), ID: "IC_kwDOAbc123",
		}},
		"GitHub, another action": {"github.json", webhook.Settings{
			ContentPath: "$.comment.body", Filters: []webhook.Filter{filter(t, "$.action is deleted")},
		}, webhook.Event{DroppedBy: "$.action is deleted"}},
		"Stripe, a paid invoice": {"stripe.json", webhook.Settings{
			ContentPath: "$.data.object", OccurredAtPath: "$.created", IDPath: "$.id",
			Filters: []webhook.Filter{
				filter(t, "$.type is-any-of invoice.paid invoice.payment_failed"), filter(t, "$.livemode is true"),
				filter(t, "$.data.object.amount_paid exists"),
			},
		}, webhook.Event{
			Content: `{ "object": "invoice", "amount_paid": 1.50,  "customer_email": "ana@example.com",` +
				` "lines": [1e3, 12345678901234567890] }`,
			OccurredAt: instantOf(t, "2026-05-04T09:12:33Z"), ID: "evt_1PXyz",
		}},
		"Stripe, no other event": {"stripe.json", webhook.Settings{
			Filters: []webhook.Filter{filter(t, "$.type is-any-of customer.created customer.deleted")},
		}, webhook.Event{DroppedBy: "$.type is any of customer.created, customer.deleted"}},
		"Slack, a message in a thread": {"slack.json", webhook.Settings{
			ContentPath: "$.event.text", OccurredAtPath: "$.event.ts", IDPath: "$.event['client_msg_id']",
			Filters: []webhook.Filter{filter(t, "$.event.type is message"), filter(t, "$.event.thread_ts exists")},
		}, webhook.Event{
			Content:    "Ship it 🚀 & tell <@U2>",
			OccurredAt: instantOf(t, "2026-05-04T09:12:33.000219Z"), ID: "8a1e-77",
		}},
		"Slack, an edited message": {"slack.json", webhook.Settings{
			ContentPath: "$.event.text", Filters: []webhook.Filter{filter(t, "$.event.edited exists")},
		}, webhook.Event{DroppedBy: "$.event.edited exists"}},
		"Zendesk, a ticket": {"zendesk.json", webhook.Settings{
			ContentPath: "$.detail.description", OccurredAtPath: "$.detail.updated_at", IDPath: "$.detail.id",
			Filters: []webhook.Filter{filter(t, "$.detail.tags contains vip"), filter(t, "$.detail.priority is 3")},
		}, webhook.Event{
			Content: "My order 4711 did not arrive.", OccurredAt: instantOf(t, "2026-05-04T09:12:33.5Z"), ID: "35436",
		}},
		"Zendesk, a tag that none is": {"zendesk.json", webhook.Settings{
			ContentPath: "$.detail.description", Filters: []webhook.Filter{filter(t, "$.detail.tags contains vi")},
		}, webhook.Event{DroppedBy: "$.detail.tags contains vi"}},
		"Jira, an issue": {"jira.json", webhook.Settings{
			ContentPath: "$.issue.fields.summary", OccurredAtPath: "$.timestamp", IDPath: "$.issue.key",
		}, webhook.Event{
			Content: "Login page is blank", OccurredAt: instantOf(t, "2026-05-04T09:12:33.123Z"), ID: "OPS-12",
		}},
		"Jira, a comment that is not there": {
			"jira.json",
			webhook.Settings{ContentPath: "$.comment.body"},
			webhook.Event{DroppedBy: webhook.NoContent},
		},
	} {
		t.Run(name, func(t *testing.T) {
			body, err := payloads.ReadFile("testdata/" + c.file)
			runtest.Must(t, err)
			if diff := cmp.Diff(c.want, compile(t, c.settings).Map(body)); diff != "" {
				t.Errorf("event (-want +got):\n%s", diff)
			}
		})
	}
}

func TestMap_Content(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 250) + `"x"` + strings.Repeat("}", 250)
	for _, c := range []struct{ path, body, want string }{
		{"$.a", `{"a":"tea"}`, "tea"},
		{"$.a", `{"a":"\u00e9\n\"\ud83d\ude80"}`, "é\n\"🚀"},
		{"$.a", `{"a":"\u0000"}`, "\x00"},
		{"$.a", `{"a":"\ud800."}`, "\ufffd."},
		{"$.a", "{\"a\":\"b\xff\"}", "b\ufffd"},
		{"$.a", `{"a":1.50}`, "1.50"},
		{"$.a", `{"a":1e3}`, "1e3"},
		{"$.a", `{"a":12345678901234567890}`, "12345678901234567890"},
		{"$.a", `{"a":true}`, "true"},
		{"$.a", `{"a": { "x" : 1,  "y":[1, 2] } }`, `{ "x" : 1,  "y":[1, 2] }`},
		{"$.a", `{"a":[ 1.0 ,2]}`, `[ 1.0 ,2]`},
		{"$.a", `{"a":"first","a":"last"}`, "last"},
		{"$.a.b", `{"a":{"b":"x"},"a":1}`, ""},
		{"$.a.b", `{"a":1,"a":{"b":"x"}}`, "x"},
		{"$.a", `{"a":null}`, ""},
		{"$.a", `{"b":"tea"}`, ""},
		{"$.a", `{"a":""}`, ""},
		{"$.a", `{"a":" \n\t "}`, ""},
		{"$.a", `["a"]`, ""},
		{"$[1]", `["a", "b"]`, "b"},
		{"$[2]", `["a", "b"]`, ""},
		{"$[99999999999999999999]", `["a"]`, ""},
		{"$[0]", `{"0":"a"}`, ""},
		{"$['a b'][0]['it\\'s \\\\']", `{"a b":[{"it's \\":"x"}]}`, "x"},
		{"$['']", `{"":"x"}`, "x"},
		{"$.caf\u0065", `{"c\u0061fe":"x"}`, "x"},
		{"$" + strings.Repeat(".a", 249), deep, `{"a":"x"}`},
		{"$", ` {"a": 1} `, ` {"a": 1} `},
		{"$", `"tea"`, `"tea"`},
		{"$", `null`, "null"},
		{"$.a", "plain text", "plain text"},
		{"$.a", `{"a":1} trailing`, `{"a":1} trailing`},
		{"$.a", "a=1&b=2", "a=1&b=2"},
		{"$.a", "not json \xff", "not json \ufffd"},
		{"$", "", ""},
		{"$", "  ", ""},
	} {
		want := webhook.Event{Content: c.want}
		if c.want == "" {
			want.DroppedBy = webhook.NoContent
		}
		if diff := cmp.Diff(want, compile(t, webhook.Settings{ContentPath: c.path}).Map([]byte(c.body))); diff != "" {
			t.Errorf("%.60s of %.60s (-want +got):\n%s", c.path, c.body, diff)
		}
	}
}

func TestMap_OccurredAt(t *testing.T) {
	for value, want := range map[string]string{
		`"2026-05-04T09:12:33Z"`:            "2026-05-04T09:12:33Z",
		`"2026-05-04T11:12:33+02:00"`:       "2026-05-04T09:12:33Z",
		`"2026-05-04 09:12:33"`:             "2026-05-04T09:12:33Z",
		`"2026-05-04T09:12:33.1234567"`:     "2026-05-04T09:12:33.123456Z",
		`"2026-05-04"`:                      "2026-05-04T00:00:00Z",
		`1777885953`:                        "2026-05-04T09:12:33Z",
		`"1777885953"`:                      "2026-05-04T09:12:33Z",
		`1777885953123`:                     "2026-05-04T09:12:33.123Z",
		`"1777885953123"`:                   "2026-05-04T09:12:33.123Z",
		`1777885953.0002199`:                "2026-05-04T09:12:33.000219Z",
		`1777885953123.4567`:                "2026-05-04T09:12:33.123456Z",
		`1.777885953e9`:                     "2026-05-04T09:12:33Z",
		`-1`:                                "1969-12-31T23:59:59Z",
		`99999999999`:                       "5138-11-16T09:46:39Z",
		`100000000000`:                      "1973-03-03T09:46:40Z",
		`0`:                                 "1970-01-01T00:00:00Z",
		`"20260504"`:                        "1970-08-23T11:55:04Z",
		`"yesterday"`:                       "",
		`"4 May 2026"`:                      "",
		`true`:                              "",
		`null`:                              "",
		`["2026-05-04"]`:                    "",
		`1e400`:                             "",
		`1e15`:                              "",
		`999999999999999`:                   "",
		`9999999999999999`:                  "",
		`"-"`:                               "",
		`""`:                                "",
		`"+1777885953"`:                     "",
		`"0x10"`:                            "",
		`"` + strings.Repeat("0", 70) + `"`: "",
	} {
		var at time.Time
		if want != "" {
			at = instantOf(t, want)
		}
		m := compile(t, webhook.Settings{OccurredAtPath: "$.at"})
		if got := m.Map([]byte(`{"at":` + value + `}`)).OccurredAt; !got.Equal(at) {
			t.Errorf("%s is %v, want %v", value, got, at)
		}
	}
}

func TestMap_ID(t *testing.T) {
	longest := strings.Repeat("é", limit.WebhookID)
	for value, want := range map[string]string{
		`"a-1"`: "a-1", `42`: "42", `1.50`: "1.50", `true`: "true", `" a "`: " a ",
		`"` + longest + `"`: longest, `"` + longest + `x"`: "", `""`: "", `null`: "", `{}`: "", `["a"]`: "", `"a\u0000"`: "",
	} {
		m := compile(t, webhook.Settings{IDPath: "$.id"})
		if got := m.Map([]byte(`{"id":` + value + `}`)).ID; got != want {
			t.Errorf("%.40s is %q, want %q", value, got, want)
		}
	}
	if got := compile(t, webhook.Settings{IDPath: "$.id"}).Map([]byte("no JSON")); got.ID != "" || got.Content != "no JSON" {
		t.Errorf("a body that is no JSON: %+v", got)
	}
}

func TestMap_Filters(t *testing.T) {
	body := `{"s":"Paid in full","n":1.50,"t":true,"o":{"a":1},"l":["a","b\u0063",3,true,null,["x"],{"y":1}],"z":null,"e":""}`
	for expression, want := range map[string]bool{
		"$.s is Paid in full":               true,
		"$.s is paid in full":               false,
		"$.s is Paid":                       false,
		"$.n is 1.50":                       true,
		"$.n is 1.5":                        false,
		"$.t is true":                       true,
		"$.t is True":                       false,
		`$.o is {"a":1}`:                    false,
		`$.l is a`:                          false,
		"$.z is null":                       false,
		"$.x is a":                          false,
		"$.n is-any-of 1 1.50":              true,
		"$.n is-any-of 1 2":                 false,
		`$.s is-any-of x "Paid in full"`:    true,
		"$.s contains in":                   true,
		"$.s contains IN":                   false,
		"$.l contains a":                    true,
		"$.l contains bc":                   true,
		"$.l contains b":                    false,
		"$.l contains 3":                    true,
		"$.l contains true":                 true,
		"$.l contains null":                 false,
		`$.l contains ["x"]`:                false,
		"$.n contains 1":                    false,
		`$.o contains a`:                    false,
		"$.s exists":                        true,
		"$.e exists":                        true,
		"$.o exists":                        true,
		"$.z exists":                        false,
		"$.x exists":                        false,
		"$ exists":                          true,
		`$ contains "n":1.50`:               true,
		"$.l[1] is bc":                      true,
		"$.l[9] exists":                     false,
		"$['s'] is Paid in full":            true,
		"$.o.a is 1":                        true,
		"$.o.a.b exists":                    false,
		"$.s.length exists":                 false,
		"$.l.length exists":                 false,
		"$.l[6].y is-any-of 3 2 1":          true,
		"$.s contains  in":                  true,
		"$.s contains   in":                 false,
		`$.s is-any-of "Paid\u0020in full"`: true,
	} {
		f := filter(t, expression)
		got := compile(t, webhook.Settings{Filters: []webhook.Filter{f}}).Map([]byte(body))
		if (got.DroppedBy == "") != want {
			t.Errorf("%s: %+v", expression, got)
		}
		if !want && got.DroppedBy != f.String() {
			t.Errorf("%s is dropped by %q", expression, got.DroppedBy)
		}
		if plain := compile(t, webhook.Settings{Filters: []webhook.Filter{f}}).Map([]byte("no JSON")); plain.DroppedBy == "" {
			t.Errorf("%s matches a body that is no JSON", expression)
		}
	}
	// All must match, and the first that does not is named, before the content.
	m := compile(t, webhook.Settings{ContentPath: "$.x", Filters: []webhook.Filter{
		filter(t, "$.s exists"), filter(t, "$.q exists"), filter(t, "$.r exists"),
	}})
	if got := m.Map([]byte(body)); got.DroppedBy != "$.q exists" {
		t.Errorf("dropped by %q", got.DroppedBy)
	}
}

func TestSettings_Compile(t *testing.T) {
	filters := func(n int) (list []webhook.Filter) {
		for range n {
			list = append(list, webhook.Filter{Path: "$.a", Operator: webhook.Exists})
		}
		return list
	}
	one := func(f webhook.Filter) func(*webhook.Settings) {
		return func(s *webhook.Settings) { s.Filters = []webhook.Filter{{Path: "$", Operator: webhook.Exists}, f} }
	}
	many := func(n int) []string { return strings.Split(strings.Repeat("a,", n-1)+"a", ",") }
	for _, c := range []struct {
		what   string
		change func(*webhook.Settings)
		want   string // "" if they are taken
	}{
		{"nothing", func(*webhook.Settings) {}, ""},
		{"the longest name", func(s *webhook.Settings) { s.Name = strings.Repeat("é", 64) }, ""},
		{"a longer name", func(s *webhook.Settings) { s.Name = strings.Repeat("é", 65) }, "name: "},
		{"no name", func(s *webhook.Settings) { s.Name = "" }, "name: "},
		{"a blank name", func(s *webhook.Settings) { s.Name = " " }, "name: "},
		{"U+0000 in the name", func(s *webhook.Settings) { s.Name = "a\x00" }, "name: "},
		{"no content path", func(s *webhook.Settings) { s.ContentPath = "" }, "content path: "},
		{"a wrong content path", func(s *webhook.Settings) { s.ContentPath = "$..a" }, "content path: "},
		{"the longest path", func(s *webhook.Settings) { s.ContentPath = "$." + strings.Repeat("a", 498) }, ""},
		{"a longer path", func(s *webhook.Settings) { s.ContentPath = "$." + strings.Repeat("a", 499) }, "content path: "},
		{"a wrong occurred-at path", func(s *webhook.Settings) { s.OccurredAtPath = "at" }, "occurred-at path: "},
		{"a wrong id path", func(s *webhook.Settings) { s.IDPath = "$.a[*]" }, "id path: "},
		{"an audience", func(s *webhook.Settings) { s.Audience = "team-1" }, ""},
		{"no slug", func(s *webhook.Settings) { s.Audience = "Team" }, "audience: "},
		{"20 filters", func(s *webhook.Settings) { s.Filters = filters(20) }, ""},
		{"21 filters", func(s *webhook.Settings) { s.Filters = filters(21) }, "filters: "},
		{"a wrong path of a filter", one(webhook.Filter{Path: "$[1:2]", Operator: webhook.Exists}), "filter 2: path: "},
		{"no operator", one(webhook.Filter{Path: "$"}), "filter 2: "},
		{"is without a value", one(webhook.Filter{Path: "$", Operator: webhook.Is}), "filter 2: "},
		{"is with two", one(webhook.Filter{Path: "$", Operator: webhook.Is, Values: many(2)}), "filter 2: "},
		{"exists with a value", one(webhook.Filter{Path: "$", Operator: webhook.Exists, Values: many(1)}), "filter 2: "},
		{"is any of one", one(webhook.Filter{Path: "$", Operator: webhook.IsAnyOf, Values: many(1)}), ""},
		{"is any of none", one(webhook.Filter{Path: "$", Operator: webhook.IsAnyOf}), "filter 2: "},
		{"is any of 50", one(webhook.Filter{Path: "$", Operator: webhook.IsAnyOf, Values: many(50)}), ""},
		{"is any of 51", one(webhook.Filter{Path: "$", Operator: webhook.IsAnyOf, Values: many(51)}), "filter 2: "},
		{"64 KiB of values", one(webhook.Filter{Path: "$", Operator: webhook.Is, Values: []string{strings.Repeat("a", 64<<10)}}), ""},
		{"more", one(webhook.Filter{Path: "$", Operator: webhook.Is, Values: []string{strings.Repeat("a", 64<<10+1)}}), "filters: "},
	} {
		s := webhook.Settings{Name: "Tickets", ContentPath: "$.a"}
		c.change(&s)
		_, err := s.Compile()
		if c.want == "" && err != nil {
			t.Errorf("%s: %v", c.what, err)
		}
		f, _ := errors.AsType[*fault.Error](err)
		if c.want != "" && (f == nil || f.Code != fault.CodeInvalidRequest || !strings.HasPrefix(f.Msg, c.want)) {
			t.Errorf("%s: %v, want %s…", c.what, err, c.want)
		}
	}
}

func BenchmarkMap(b *testing.B) {
	body, err := payloads.ReadFile("testdata/github.json")
	runtest.Must(b, err)
	s := webhook.Settings{
		ContentPath: "$.comment.body", OccurredAtPath: "$.comment.created_at", IDPath: "$.comment.node_id",
		Filters: []webhook.Filter{filter(b, "$.action is created"), filter(b, "$.issue.labels[0].name contains bug")},
	}
	for name, padding := range map[string]int{"1KB": 0, "1MiB": 1<<20 - 2*len(body)} {
		b.Run(name, func(b *testing.B) {
			body := append([]byte(`{"padding":"`+strings.Repeat("x", padding)+`",`), body[1:]...)
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			for b.Loop() {
				s.Name = "Tickets"
				if m, err := s.Compile(); err != nil || m.Map(body).DroppedBy != "" {
					b.Fatal("not mapped")
				}
			}
		})
	}
}

const (
	formType  = "application/x-www-form-urlencoded"
	multiType = "multipart/form-data; boundary=b"
)

// A body is JSON in UTF-8 whatever its type, charset and byte order mark; a form of one JSON object is that object.
func TestPlain(t *testing.T) {
	event := `{"boat": "Måke & Co", "at": "10:15 +02"}`
	form := "payload=" + url.QueryEscape(event)
	parts := func(more string) string {
		return "--b\r\nContent-Disposition: form-data; name=\"payload\"\r\n\r\n" + event + "\r\n" + more + "--b--\r\n"
	}
	for name, c := range map[string]struct{ kind, body, want string }{
		"JSON":                        {"application/json", event, event},
		"JSON as text":                {"text/plain", event, event},
		"JSON as a form":              {formType, event, event},
		"JSON without a type":         {"", event, event},
		"a byte order mark":           {"application/json", "\ufeff" + event, event},
		"a mark of UTF-16":            {"application/json", "\xff\xfe{\x00}\x00", "{}"},
		"a mark of UTF-16, reversed":  {"text/plain; charset=utf-8", "\xfe\xff\x00{\x00}", "{}"},
		"UTF-16 by its name":          {"application/json; charset=utf-16le", "{\x00}\x00", "{}"},
		"Latin letters":               {"application/json; charset=ISO-8859-1", "{\"boat\": \"M\xe5ke\"}", `{"boat": "Måke"}`},
		"Cyrillic letters":            {`application/json; charset="windows-1251"`, "{\"a\":\"\xcb\xee\xe4\xea\xe0\"}", `{"a":"Лодка"}`},
		"a wrong charset":             {"application/json; charset=utf-16", event, event},
		"text in a charset":           {"text/plain; charset=iso-8859-1", "M\xe5ke", "Måke"},
		"an unknown charset":          {"application/json; charset=x-none", event, event},
		"a form":                      {formType, form, event},
		"a form with a charset":       {formType + "; charset=utf-8", form + "\n", event},
		"a form without a type":       {"", form, event},
		"a form in Latin letters":     {formType + "; charset=iso-8859-1", "p=%7B%22a%22%3A%22M%E5ke%22%7D", `{"a":"Måke"}`},
		"a form after a mark":         {formType, "\ufeff" + form, event},
		"a form of two fields":        {formType, form + "&token=x", form + "&token=x"},
		"a form of a text":            {formType, "payload=tea", "payload=tea"},
		"a form of a list":            {formType, "payload=%5B1%5D", "payload=%5B1%5D"},
		"a form that is none":         {formType, "payload=%zz", "payload=%zz"},
		"a form of another type":      {"text/plain", form, form},
		"a form of parts":             {multiType, parts(""), event},
		"a form of two parts":         {multiType, parts("--b\r\n\r\nx\r\n"), parts("--b\r\n\r\nx\r\n")},
		"a form of parts, cut off":    {multiType, "--b\r\n", "--b\r\n"},
		"a form without its boundary": {"multipart/form-data", parts(""), parts("")},
		"text":                        {"text/plain", "Boat = {}", "Boat = {}"},
		"nothing":                     {formType, "", ""},
		"a type that cannot be read":  {"application/json; charset", event, event},
	} {
		if got := string(webhook.Plain(c.kind, []byte(c.body))); got != c.want {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}

// What is read of a body does not depend on how often it is read: a logged body is sent again.
func FuzzPlain(f *testing.F) {
	for _, kind := range []string{"", "application/json", formType, multiType, "text/plain; charset=utf-16", formType + "; charset=koi8-r"} {
		f.Add(kind, []byte("p=%7B%22a%22%3A1%7D"))
		f.Add(kind, []byte("--b\r\n\r\n{}\r\n--b--"))
		f.Add(kind, []byte("\xff\xfe{\x00}\x00"))
	}
	f.Fuzz(func(t *testing.T, kind string, body []byte) {
		plain := webhook.Plain(kind, body)
		if json.Valid(plain) {
			if again := webhook.Plain("", plain); string(again) != string(plain) {
				t.Errorf("%q of type %q is %q, and then %q", body, kind, plain, again)
			}
		}
	})
}

// The times of other systems: GitLab's, with an offset after a blank, and those of mail.
func TestMap_Times(t *testing.T) {
	m := compile(t, webhook.Settings{ContentPath: "$.text", OccurredAtPath: "$.at"})
	for at, want := range map[string]string{
		`"2025-06-03 07:04:05 UTC"`: "2025-06-03T07:04:05Z", `"2025-06-03 09:04:05 +0200"`: "2025-06-03T07:04:05Z",
		`"2025-06-03T09:04:05+02:00"`: "2025-06-03T07:04:05Z", `"Tue, 3 Jun 2025 09:04:05 +0200"`: "2025-06-03T07:04:05Z",
		`"Tue, 03 Jun 2025 07:04:05 GMT"`: "2025-06-03T07:04:05Z", `" 2025-06-03 07:04:05 UTC"`: "2025-06-03T07:04:05Z",
		`1748934245`: "2025-06-03T07:04:05Z", `"1748934245123"`: "2025-06-03T07:04:05.123Z",
		`"Tue, 3 Jun 2025 09:04:05 CEST"`: "", `"3.6.2025"`: "", `"2025-06-03 09:04:05 Europe/Oslo"`: "",
	} {
		event := m.Map([]byte(`{"text":"tea","at":` + at + `}`))
		if want == "" != event.OccurredAt.IsZero() || want != "" && !event.OccurredAt.Equal(instantOf(t, want)) {
			t.Errorf("%s is %v: want %q", at, event.OccurredAt, want)
		}
	}
}

// A filter that is edited as an expression stays the same filter.
func TestFilter_Expression(t *testing.T) {
	value := rapid.OneOf(rapid.String(), rapid.SampledFrom([]string{"", " ", `"`, "a b", "a\nb", " a", "a\t", "is", "\u00a0"}))
	rapid.Check(t, func(t *rapid.T) {
		f := webhook.Filter{
			Path:     rapid.SampledFrom([]string{"$", "$.a", "$['a b'][0]"}).Draw(t, "path"),
			Operator: rapid.SampledFrom([]webhook.Operator{webhook.Is, webhook.IsAnyOf, webhook.Contains, webhook.Exists}).Draw(t, "operator"),
		}
		switch f.Operator {
		case webhook.Exists:
		case webhook.Contains:
			f.Values = []string{rapid.StringMatching(`[a-z"]([a-z" ]*[a-z"])?`).Draw(t, "value")}
		case webhook.Is:
			f.Values = []string{value.Draw(t, "value")}
		default:
			f.Values = rapid.SliceOfN(value, 1, 5).Draw(t, "values")
		}
		got, err := webhook.ParseFilter(f.Expression())
		if err != nil {
			t.Fatalf("%q: %v", f.Expression(), err)
		}
		if f.Operator == webhook.Is && got.Operator == webhook.IsAnyOf {
			f.Operator = webhook.IsAnyOf
		}
		if diff := cmp.Diff(f, got); diff != "" {
			t.Errorf("%q (-want +got):\n%s", f.Expression(), diff)
		}
	})
}

// Every filter has its verdict, also after the one that drops the event.
func TestMatches(t *testing.T) {
	m := compile(t, webhook.Settings{Filters: []webhook.Filter{
		filter(t, "$.a is x"), filter(t, "$.b exists"), filter(t, "$.c contains y"),
	}})
	for body, want := range map[string][]bool{
		`{"a":"x","b":1,"c":["y"]}`: {true, true, true}, `{"a":"z","b":1}`: {false, true, false}, `a`: {false, false, false},
	} {
		if diff := cmp.Diff(want, m.Matches([]byte(body))); diff != "" {
			t.Errorf("%s (-want +got):\n%s", body, diff)
		}
	}
}
