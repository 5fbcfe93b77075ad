package webhook_test

import (
	"encoding/json"
	"net/url"
	"testing"

	"github.com/annals-project/annals/domain/webhook"
)

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
